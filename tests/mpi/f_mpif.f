C     MPI-IO from Fortran 77: 100 integers of each rank, interleaved by a view, and read back.
      program interleave
      implicit none
      include 'mpif.h'
      integer ierr, rank, ranks, fh, i, bad, filetype, tile, n
      integer status(MPI_STATUS_SIZE), values(100), back(100)
      integer (kind=MPI_OFFSET_KIND) disp, offset
      integer (kind=MPI_ADDRESS_KIND) lb, extent
      character*4096 path
      call MPI_Init(ierr)
      call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
      call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
      call getarg(1, path)
      call MPI_File_open(MPI_COMM_WORLD, path,
     & MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, fh, ierr)
      if (ierr .ne. MPI_SUCCESS) stop 1
      lb = 0
      extent = 40 * ranks
      call MPI_Type_contiguous(10, MPI_INTEGER, tile, ierr)
      call MPI_Type_create_resized(tile, lb, extent, filetype, ierr)
      call MPI_Type_commit(filetype, ierr)
      disp = 40 * rank
      call MPI_File_set_view(fh, disp, MPI_INTEGER, filetype, 'native',
     & MPI_INFO_NULL, ierr)
      do i = 1, 100
        values(i) = rank * 1000 + i
        back(i) = 0
      end do
      call MPI_File_write_all(fh, values, 100, MPI_INTEGER, status,
     & ierr)
      call MPI_Get_count(status, MPI_INTEGER, n, ierr)
      offset = 0
      call MPI_File_read_at(fh, offset, back, 100, MPI_INTEGER, status,
     & ierr)
      bad = 0
      if (n .ne. 100) bad = bad + 1
      do i = 1, 100
        if (values(i) .ne. back(i)) bad = bad + 1
      end do
      call MPI_File_close(fh, ierr)
      call MPI_Type_free(filetype, ierr)
      call MPI_Type_free(tile, ierr)
      if (bad .eq. 0) print *, 'fine'
      call MPI_Finalize(ierr)
      end

C     A strided view written and read back with mpif.h; the file name is the first argument.
      program fortran77
      implicit none
      include 'mpif.h'
      integer n
      parameter (n = 500)
      integer ierr, rank, ranks, fh, ftype, i, count, buf(n), back(n)
      integer status(MPI_STATUS_SIZE)
      integer (kind=MPI_OFFSET_KIND) disp, fsize, at
      character*512 name, value
      logical flag
      integer info
      call getarg(1, name)
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, ierr)
      call MPI_FILE_OPEN(MPI_COMM_WORLD, name,
     &     MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, fh, ierr)
      if (ierr .ne. MPI_SUCCESS) call MPI_ABORT(MPI_COMM_WORLD, 1, ierr)
      call MPI_TYPE_VECTOR(n / 10, 10, 10 * ranks, MPI_INTEGER, ftype,
     &     ierr)
      call MPI_TYPE_COMMIT(ftype, ierr)
      disp = 40 * rank
      call MPI_FILE_SET_VIEW(fh, disp, MPI_INTEGER, ftype, 'native',
     &     MPI_INFO_NULL, ierr)
      do i = 1, n
         buf(i) = i + 1000 * rank
         back(i) = -1
      end do
      call MPI_FILE_WRITE_ALL(fh, buf, n, MPI_INTEGER, status, ierr)
      call MPI_GET_COUNT(status, MPI_INTEGER, count, ierr)
      if (count .ne. n) call MPI_ABORT(MPI_COMM_WORLD, 2, ierr)
C     OMPIO's collective write may leave the writing to another rank.
      call MPI_FILE_SYNC(fh, ierr)
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      call MPI_FILE_SYNC(fh, ierr)
      at = 0
      call MPI_FILE_READ_AT(fh, at, back, n, MPI_INTEGER, status, ierr)
      do i = 1, n
         if (back(i) .ne. buf(i))
     &        call MPI_ABORT(MPI_COMM_WORLD, 3, ierr)
      end do
      call MPI_FILE_GET_INFO(fh, info, ierr)
      call MPI_INFO_GET(info, 'plfs_flatten_on_close', 500, value,
     &     flag, ierr)
      call MPI_FILE_SYNC(fh, ierr)
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
      call MPI_FILE_GET_SIZE(fh, fsize, ierr)
      call MPI_FILE_CLOSE(fh, ierr)
      if (rank .eq. 0) then
         print *, 'size', fsize
         if (flag) print *, 'door'
      end if
      call MPI_FINALIZE(ierr)
      end

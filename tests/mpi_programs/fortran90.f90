! A block of columns, written by a split call and read back, with "use mpi"; the file name is the
! first argument.
program fortran90
  use mpi
  implicit none
  integer :: fh, ftype, request, info, status(MPI_STATUS_SIZE)
  integer, parameter :: n = 400
  integer :: ierr, rank, ranks, i
  integer :: buf(n), back(n)
  integer(kind=MPI_OFFSET_KIND) :: disp, at, fsize
  character(len=512) :: name, value
  logical :: found
  call get_command_argument(1, name)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  buf = [(i * 3 + 7919 * rank, i = 1, n)]
  call MPI_File_open(MPI_COMM_WORLD, trim(name), ior(MPI_MODE_CREATE, MPI_MODE_RDWR), MPI_INFO_NULL, fh, ierr)
  if (ierr /= MPI_SUCCESS) call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  ! A column block of a matrix in Fortran order.
  call MPI_Type_create_subarray(2, [20, 20 * ranks], [20, 20], [0, 20 * rank], MPI_ORDER_FORTRAN, MPI_INTEGER, ftype, ierr)
  call MPI_Type_commit(ftype, ierr)
  disp = 16
  call MPI_File_set_view(fh, disp, MPI_INTEGER, ftype, "native", MPI_INFO_NULL, ierr)
  call MPI_File_write_all_begin(fh, buf, n, MPI_INTEGER, ierr)
  call MPI_File_write_all_end(fh, buf, status, ierr)
  call MPI_Get_count(status, MPI_INTEGER, i, ierr)
  if (i /= n) call MPI_Abort(MPI_COMM_WORLD, 2, ierr)
  call MPI_File_sync(fh, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_File_sync(fh, ierr)
  at = 0
  back = -1
  call MPI_File_iread_at(fh, at, back, n, MPI_INTEGER, request, ierr)
  call MPI_Wait(request, status, ierr)
  if (any(back /= buf)) call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
  call MPI_File_seek(fh, 10_MPI_OFFSET_KIND, MPI_SEEK_SET, ierr)
  call MPI_File_read(fh, back, 5, MPI_INTEGER, status, ierr)
  call MPI_File_get_position(fh, at, ierr)
  if (at /= 15 .or. any(back(1:5) /= buf(11:15))) call MPI_Abort(MPI_COMM_WORLD, 4, ierr)
  call MPI_File_get_info(fh, info, ierr)
  call MPI_Info_get(info, "plfs_flatten_on_close", 500, value, found, ierr)
  call MPI_File_get_size(fh, fsize, ierr)
  call MPI_File_close(fh, ierr)
  if (rank == 0) then
    print *, "size", fsize
    if (found) print *, "door"
  end if
  call MPI_Finalize(ierr)
end program

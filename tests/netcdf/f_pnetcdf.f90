! f_pnetcdf DIR: the Fortran interfaces come to the library as well: nf90mpi_ and nfmpi_ calls
! write, read back, and ask.
program f_pnetcdf
  use mpi
  use pnetcdf
  implicit none
  integer :: rank, ranks, ierr, ncid, varid, dims(2), ndims, i, request(1), status(1)
  integer(kind=MPI_OFFSET_KIND) :: length, start(2), count(2)
  integer :: data(4, 6), got(4, 6)
  character(len=512) :: dir
  integer :: info

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call get_command_argument(1, dir)
  call MPI_Info_create(info, ierr)
  call MPI_Info_set(info, 'nc_partitioning_enabled', 'true', ierr)
  call MPI_Info_set(info, 'nc_num_partitions', '3', ierr)
  call check(nf90mpi_create(MPI_COMM_WORLD, trim(dir)//'/f.nc', NF90_CLOBBER, info, ncid))
  length = 4
  call check(nf90mpi_def_dim(ncid, 'x', length, dims(1)))
  length = 6 * ranks
  call check(nf90mpi_def_dim(ncid, 'y', length, dims(2)))
  call check(nf90mpi_def_var(ncid, 'a', NF90_INT, dims, varid))
  call check(nf90mpi_enddef(ncid))
  data = reshape([(1000 * rank + i, i = 1, 24)], [4, 6])
  start = [integer(kind=MPI_OFFSET_KIND) :: 1, 6 * rank + 1]
  count = [integer(kind=MPI_OFFSET_KIND) :: 4, 6]
  call check(nf90mpi_put_var_all(ncid, varid, data, start, count))
  got = 0
  call check(nfmpi_get_vara_int_all(ncid, varid, start, count, got))
  if (any(got /= data)) call fail('vara')
  got = 0
  call check(nf90mpi_iget_var(ncid, varid, got, request(1), start, count))
  call check(nf90mpi_wait_all(ncid, 1, request, status))
  if (any(got /= data)) call fail('iget')
  call check(nf90mpi_inquire_variable(ncid, varid, ndims=ndims))
  if (ndims /= 2) call fail('ndims')
  call check(nf90mpi_close(ncid))
  call MPI_Finalize(ierr)
  print *, 'fine'
contains
  subroutine check(code)
    integer, intent(in) :: code
    if (code /= NF90_NOERR) call fail(nf90mpi_strerror(code))
  end subroutine
  subroutine fail(text)
    character(len=*), intent(in) :: text
    print *, 'failed: ', trim(text)
    call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  end subroutine
end program

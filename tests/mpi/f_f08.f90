! MPI-IO through mpi_f08: 100 integers of each rank, interleaved by a view, and read back.
program interleave
  use mpi_f08
  implicit none
  type(MPI_File) :: fh
  type(MPI_Datatype) :: tile, filetype
  type(MPI_Status) :: status
  type(MPI_Request) :: request
  integer :: rank, ranks, i, n, amode, values(100), back(100)
  integer(kind=MPI_OFFSET_KIND) :: place, size
  integer(kind=MPI_ADDRESS_KIND) :: extent
  character(len=4096) :: path
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call get_command_argument(1, path)
  call MPI_File_open(MPI_COMM_WORLD, trim(path), MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, fh)
  call MPI_File_get_amode(fh, amode)
  if (amode /= MPI_MODE_CREATE + MPI_MODE_RDWR) stop 1
  extent = 40 * ranks
  call MPI_Type_contiguous(10, MPI_INTEGER, tile)
  call MPI_Type_create_resized(tile, 0_MPI_ADDRESS_KIND, extent, filetype)
  call MPI_Type_commit(filetype)
  place = 40 * rank
  call MPI_File_set_view(fh, place, MPI_INTEGER, filetype, 'native', MPI_INFO_NULL)
  values = [(rank * 1000 + i, i = 1, 100)]
  back = 0
  call MPI_File_iwrite(fh, values, 100, MPI_INTEGER, request)
  call MPI_Wait(request, status)
  call MPI_Get_count(status, MPI_INTEGER, n)
  call MPI_File_seek(fh, 0_MPI_OFFSET_KIND, MPI_SEEK_SET)
  call MPI_File_read_all(fh, back, 100, MPI_INTEGER, status)
  call MPI_File_sync(fh)
  call MPI_File_get_size(fh, size)
  call MPI_File_close(fh)
  call MPI_Type_free(filetype)
  call MPI_Type_free(tile)
  if (n == 100 .and. all(values == back) .and. size == 400 * ranks) print *, 'fine'
  call MPI_Finalize()
end program

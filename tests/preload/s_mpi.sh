# MPI-IO of an MPICH (ROMIO) on top of the POSIX door. Its UCX puts code into mmap and reaches the
# original by syscall(2); a door that sends syscall(SYS_mmap) through its own mmap does not end.
command -v mpicc.mpich > /dev/null && command -v mpirun.mpich > /dev/null || { echo "no mpich" >&2; exit 77; }
cat > "$T_BIN/mpi.c" <<'END'
#include <mpi.h>
#include <stdio.h>
#include <string.h>
int main(int c,char**v){ int r,n; MPI_Init(&c,&v); MPI_Comm_rank(MPI_COMM_WORLD,&r); MPI_Comm_size(MPI_COMM_WORLD,&n); MPI_File f; char b[47001]; memset(b,'a'+r,sizeof b);
 int e=MPI_File_open(MPI_COMM_WORLD,v[1],MPI_MODE_CREATE|MPI_MODE_RDWR,MPI_INFO_NULL,&f); if(e){char s[300];int l;MPI_Error_string(e,s,&l);printf("%s\n",s);MPI_Abort(MPI_COMM_WORLD,1);} 
 for(int i=0;i<50;i++) MPI_File_write_at_all(f,(MPI_Offset)(i*n+r)*sizeof b,b,sizeof b,MPI_BYTE,MPI_STATUS_IGNORE);
 MPI_File_sync(f); MPI_Barrier(MPI_COMM_WORLD); MPI_File_sync(f); MPI_Request q; char d[47001]; int o=(r+1)%n; MPI_File_iread_at(f,(MPI_Offset)(7*n+o)*sizeof b,d,sizeof d,MPI_BYTE,&q); MPI_Wait(&q,MPI_STATUS_IGNORE); MPI_Offset sz; MPI_File_get_size(f,&sz); 
 int ok=1; for(int i=0;i<47001;i++) ok&=d[i]=='a'+o; printf("rank %d ok %d size %lld\n",r,ok,(long long)sz); MPI_File_close(&f); MPI_Finalize(); }
END
mpicc.mpich -w -o "$T_BIN/mpi" "$T_BIN/mpi.c" || exit 77
mpirun.mpich -np 3 "$T_BIN/mpi" file | sort; echo "${PIPESTATUS[0]}"

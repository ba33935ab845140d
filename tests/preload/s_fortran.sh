# Fortran's formatted, stream and direct files.
command -v gfortran > /dev/null || { echo "no gfortran" >&2; exit 77; }
cat > "$T_BIN/f.f90" <<'END'
program p
 integer :: i, v
 character(20) :: s
 open(10,file='form',status='replace'); do i=1,1000; write(10,*) i, i*2; end do; close(10)
 open(10,file='form',status='old',position='append'); write(10,'(a)') 'end'; close(10)
 open(11,file='strm',access='stream',form='unformatted'); write(11) (i,i=1,1000); read(11,pos=41) v; print *, v; close(11)
 open(12,file='dir',access='direct',recl=20,form='formatted'); do i=10,1,-1; write(12,'(i20)',rec=i) i; end do; read(12,'(a)',rec=7) s; print *, s; close(12)
 open(10,file='form'); read(10,*) i,v; rewind(10); read(10,*); read(10,*) i,v; print *, i, v; close(10, status='delete')
end
END
gfortran -ffree-line-length-none -J "$T_BIN" -o "$T_BIN/f" "$T_BIN/f.f90" || exit 77
"$T_BIN/f"

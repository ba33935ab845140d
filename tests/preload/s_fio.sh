# fio writes with several engines and jobs and verifies what it reads.
command -v fio > /dev/null || { echo "no fio" >&2; exit 77; }
for engine in psync sync posixaio pvsync pvsync2; do
    fio --name=j --directory=. --ioengine=$engine --rw=randwrite --bs=4k --size=1m --numjobs=2 --iodepth=4 --verify=crc32c --do_verify=1 --end_fsync=1 \
        --fallocate=none --output-format=terse --minimal > /dev/null 2> fio.err; echo $engine $?; cat fio.err
    stat -c '%n %s' j.*; rm -f j.* *.state fio.err
done
fio --name=one --filename=shared --ioengine=psync --rw=write --bs=47001 --size=2m --numjobs=4 --offset_increment=2m --thread --verify=md5 --fallocate=none --output=/dev/null; echo $?; stat -c %s shared; rm -f shared *.state

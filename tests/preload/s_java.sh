# Java's files, channels, mappings, locks and child processes.
command -v javac > /dev/null || { echo "no javac" >&2; exit 77; }
cat > "$T_BIN/J.java" <<'END'
import java.io.*; import java.nio.*; import java.nio.file.*; import java.nio.channels.*; import java.util.*;
public class J { public static void main(String[] a) throws Exception {
 Path p=Paths.get("j.txt"); Files.write(p, Collections.nCopies(1000,"line")); System.out.println(Files.size(p)+" "+Files.readAllLines(p).size());
 try(RandomAccessFile r=new RandomAccessFile("raf","rw")){ r.seek(100); r.writeInt(42); r.seek(100); System.out.println(r.readInt()+" "+r.length()); r.setLength(50); System.out.println(r.length()); 
  FileChannel c=r.getChannel(); ByteBuffer b=ByteBuffer.wrap("hello".getBytes()); c.write(b, 10); MappedByteBuffer m=c.map(FileChannel.MapMode.READ_ONLY,0,50); System.out.println((char)m.get(10)); try(FileLock l=c.lock()){System.out.println(l.isValid());} }
 Files.copy(p, Paths.get("j2")); Files.move(Paths.get("j2"),Paths.get("j3"),StandardCopyOption.ATOMIC_MOVE); System.out.println(Files.exists(Paths.get("j3"))+" "+Files.mismatch(p,Paths.get("j3")));
 try(FileChannel i=FileChannel.open(p);FileChannel o=FileChannel.open(Paths.get("tr"),StandardOpenOption.CREATE,StandardOpenOption.WRITE)){System.out.println(i.transferTo(0,i.size(),o));}
 try(DirectoryStream<Path> d=Files.newDirectoryStream(Paths.get("."))){TreeSet<String> t=new TreeSet<>(); for(Path q:d)t.add(q.getFileName().toString()); System.out.println(t);}
 try(PrintWriter w=new PrintWriter(new BufferedWriter(new FileWriter("pw",true)))){for(int i=0;i<5000;i++)w.println(i);} System.out.println(new File("pw").length()); Files.delete(p);
 Process q=new ProcessBuilder("sh","-c","echo from child").redirectOutput(new File("pb")).start(); q.waitFor(); System.out.println(Files.readString(Paths.get("pb")));
}}
END
javac -d "$T_BIN" "$T_BIN/J.java" && java -cp "$T_BIN" J

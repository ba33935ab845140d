# C++ streams: libstdc++ remembers stdout in a constructor, and files use write and writev.
command -v g++ > /dev/null || { echo "no g++" >&2; exit 77; }
cat > "$T_BIN/cxx.cc" <<'END'
#include <fstream>
#include <iostream>
#include <string>
#include <filesystem>
int main() {
	{ std::ofstream o("o"); for (int i = 0; i < 10000; i++) o << i << '\n'; }
	std::ifstream i("o"); std::string l; long n = 0; while (std::getline(i, l)) n += std::stol(l);
	i.clear(); i.seekg(10); i >> l;
	std::cout << n << ' ' << l << ' ' << std::filesystem::file_size("o") << std::endl;
	{ std::fstream f("o", std::ios::in | std::ios::out); f.seekp(3); f << "XYZ"; f.seekg(0); std::getline(f, l); std::cout << l << '\n'; }
	{ std::ofstream a("o", std::ios::app); a << "appended"; }
	std::filesystem::copy_file("o", "p"); std::filesystem::rename("p", "q"); std::filesystem::resize_file("q", 9);
	std::cout << std::filesystem::file_size("q") << '\n'; std::cerr << "cerr\n";
	int v; while (std::cin >> v) std::cout << v * 2 << '\n';
}
END
g++ -O1 -o "$T_BIN/cxx" "$T_BIN/cxx.cc" || exit 77
echo 1 2 3 > in; "$T_BIN/cxx" < in > out 2> err; cat out err; cat in | "$T_BIN/cxx"

# cin, cout and cerr have the streams that C had when they were made, and what comes to be behind
# them was lost.
cat > "$T_BIN/follow.cc" <<'END'
#include <cstdio>
#include <fcntl.h>
#include <iostream>
#include <string>
#include <unistd.h>
int main() {
	int keep = dup(1), n = 0; std::string s;
	freopen("numbers", "r", stdin); freopen("by_freopen", "w", stdout);
	std::cin >> n >> s; std::cout << "got " << n << ' ' << s << std::endl; printf("C\n"); fflush(stdout);
	int f = open("by_dup2", O_RDWR | O_CREAT, 0644); dup2(f, 1); dup2(f, 2);
	std::cout << "cout" << std::endl; std::cerr << "cerr" << std::endl; std::clog << "clog" << std::endl;
	dprintf(keep, "%d %d %d\n", (int)std::cin.good(), (int)std::cout.good(), (int)std::cerr.good());
}
END
g++ -O1 -w -o "$T_BIN/follow" "$T_BIN/follow.cc" || exit 77
echo "42 hello" > numbers; "$T_BIN/follow"; cat by_freopen by_dup2

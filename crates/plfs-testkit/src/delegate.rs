//! For stores that a test puts in front of another one.

/// The methods of [`Store`](plfs::store::Store) that make, move, remove and change names, as those
/// of the store in field `$inner`.
#[macro_export]
macro_rules! delegate_names {
    ($inner:ident) => {
        fn mkdir(&self, path: &::std::path::Path, mode: u32) -> ::plfs::store::Result<()> {
            self.$inner.mkdir(path, mode)
        }
        fn rmdir(&self, path: &::std::path::Path) -> ::plfs::store::Result<()> {
            self.$inner.rmdir(path)
        }
        fn unlink(&self, path: &::std::path::Path) -> ::plfs::store::Result<()> {
            self.$inner.unlink(path)
        }
        fn rename(
            &self,
            from: &::std::path::Path,
            to: &::std::path::Path,
        ) -> ::plfs::store::Result<()> {
            self.$inner.rename(from, to)
        }
        fn link(
            &self,
            from: &::std::path::Path,
            to: &::std::path::Path,
        ) -> ::plfs::store::Result<()> {
            self.$inner.link(from, to)
        }
        fn link_open(
            &self,
            file: &dyn ::plfs::store::StoreFile,
            to: &::std::path::Path,
        ) -> ::plfs::store::Result<()> {
            self.$inner.link_open(file, to)
        }
        fn symlink(
            &self,
            target: &::std::path::Path,
            path: &::std::path::Path,
        ) -> ::plfs::store::Result<()> {
            self.$inner.symlink(target, path)
        }
        fn readlink(
            &self,
            path: &::std::path::Path,
        ) -> ::plfs::store::Result<::std::path::PathBuf> {
            self.$inner.readlink(path)
        }
        fn chmod(&self, path: &::std::path::Path, mode: u32) -> ::plfs::store::Result<()> {
            self.$inner.chmod(path, mode)
        }
        fn chown(
            &self,
            path: &::std::path::Path,
            uid: Option<u32>,
            gid: Option<u32>,
            links: ::plfs::store::Links,
        ) -> ::plfs::store::Result<()> {
            self.$inner.chown(path, uid, gid, links)
        }
        fn set_times(
            &self,
            path: &::std::path::Path,
            atime: Option<::plfs::store::Time>,
            mtime: Option<::plfs::store::Time>,
        ) -> ::plfs::store::Result<()> {
            self.$inner.set_times(path, atime, mtime)
        }
        fn sync_dir(&self, path: &::std::path::Path) -> ::plfs::store::Result<()> {
            self.$inner.sync_dir(path)
        }
        fn space(&self, path: &::std::path::Path) -> ::plfs::store::Result<::plfs::store::Space> {
            self.$inner.space(path)
        }
    };
}

/// The methods of [`StoreFile`](plfs::store::StoreFile) that move no bytes and that every store
/// has, as those of the file in field `$inner`.
#[macro_export]
macro_rules! delegate_file {
    ($inner:tt) => {
        fn stat(&self) -> ::plfs::store::Result<::plfs::store::Stat> {
            self.$inner.stat()
        }
        fn set_len(&self, len: u64) -> ::plfs::store::Result<()> {
            self.$inner.set_len(len)
        }
        fn sync_data(&self) -> ::plfs::store::Result<()> {
            self.$inner.sync_data()
        }
        fn punch(&self, offset: u64, length: u64) -> ::plfs::store::Result<()> {
            self.$inner.punch(offset, length)
        }
        fn allocate(
            &self,
            offset: u64,
            length: u64,
            size: ::plfs::store::Size,
        ) -> ::plfs::store::Result<()> {
            self.$inner.allocate(offset, length, size)
        }
        fn append(&self, buf: &[u8]) -> ::plfs::store::Result<usize> {
            self.$inner.append(buf)
        }
        fn sync_all(&self) -> ::plfs::store::Result<()> {
            self.$inner.sync_all()
        }
        fn attribute(&self, name: &str) -> ::plfs::store::Result<Option<Vec<u8>>> {
            self.$inner.attribute(name)
        }
        fn set_new_attribute(&self, name: &str, value: &[u8]) -> ::plfs::store::Result<()> {
            self.$inner.set_new_attribute(name, value)
        }
        fn try_gate(&self) -> ::plfs::store::Result<bool> {
            self.$inner.try_gate()
        }
        fn is_open_elsewhere(&self) -> bool {
            self.$inner.is_open_elsewhere()
        }
        fn leave_gate(&self) {
            self.$inner.leave_gate();
        }
        fn try_lock(&self, kind: ::plfs::store::LockKind) -> ::plfs::store::Result<bool> {
            self.$inner.try_lock(kind)
        }
        fn map(&self) -> ::plfs::store::Result<::plfs::store::Bytes> {
            self.$inner.map()
        }
    };
}

//! Both filesystems behind one small trait, so that they are asked the same.

use fractal_fs::Vfs;
use sandfs_core::Workspace;

pub trait World: Sized {
    const NAME: &'static str;
    fn empty() -> Self;
    fn fork(&self) -> Self;
    fn write(&mut self, path: &str, content: Vec<u8>);
    /// The length, so that nothing is optimised away.
    fn read(&self, path: &str) -> usize;
    fn contains(&self, path: &str, word: &[u8]) -> bool;
    fn stat(&self, path: &str) -> u64;
    fn list(&self, path: &str) -> usize;
    fn names(&self, path: &str) -> Vec<String>;
    fn remove(&mut self, path: &str);
    fn changes(&self, base: &Self) -> usize;
}

/// Whether a file holds a word: the same search for both.
fn holds(content: &[u8], word: &[u8]) -> bool {
    content.windows(word.len()).any(|window| window == word)
}

impl World for Vfs {
    const NAME: &'static str = "ours";

    fn empty() -> Vfs {
        Vfs::default()
    }

    fn fork(&self) -> Vfs {
        Vfs::fork(self)
    }

    fn write(&mut self, path: &str, content: Vec<u8>) {
        self.write_all(path, content).expect("written");
    }

    fn read(&self, path: &str) -> usize {
        Vfs::read(self, path).expect("read").len()
    }

    fn contains(&self, path: &str, word: &[u8]) -> bool {
        holds(&Vfs::read(self, path).expect("read"), word)
    }

    fn stat(&self, path: &str) -> u64 {
        Vfs::stat(self, path).expect("there").size
    }

    fn list(&self, path: &str) -> usize {
        Vfs::list(self, path).expect("listed").len()
    }

    fn names(&self, path: &str) -> Vec<String> {
        let listed = Vfs::list(self, path).expect("listed");
        listed.iter().map(|listed| listed.name.to_string()).collect()
    }

    fn remove(&mut self, path: &str) {
        self.remove_file(path).expect("removed");
    }

    fn changes(&self, base: &Vfs) -> usize {
        self.changes_since(&base.tree()).expect("compared").len()
    }
}

impl World for Workspace {
    const NAME: &'static str = "theirs";

    fn empty() -> Workspace {
        Workspace::new()
    }

    fn fork(&self) -> Workspace {
        Workspace::fork(self)
    }

    fn write(&mut self, path: &str, content: Vec<u8>) {
        Workspace::write(self, path, content).expect("written");
    }

    fn read(&self, path: &str) -> usize {
        Workspace::read(self, path).expect("read").len()
    }

    fn contains(&self, path: &str, word: &[u8]) -> bool {
        holds(&Workspace::read(self, path).expect("read"), word)
    }

    fn stat(&self, path: &str) -> u64 {
        Workspace::stat(self, path).expect("there").size
    }

    fn list(&self, path: &str) -> usize {
        Workspace::list(self, path).expect("listed").len()
    }

    fn names(&self, path: &str) -> Vec<String> {
        let listed = Workspace::list(self, path).expect("listed");
        listed.into_iter().map(|entry| entry.name).collect()
    }

    fn remove(&mut self, path: &str) {
        Workspace::remove(self, path, false).expect("removed");
    }

    fn changes(&self, base: &Workspace) -> usize {
        self.changes_since(base).expect("compared").len()
    }
}

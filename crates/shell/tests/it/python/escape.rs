//! Attempts to reach the host; passing means that they failed.

use super::{patient, program};
use crate::{shown, text};
use fractal_fs::Vfs;

/// Runs a program that knows a directory of the host as `H`, with a secret in
/// it, and shows that nothing of it came in and nothing went out.
fn attack(code: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "the host's own").unwrap();
    let mut shell = patient(Vfs::default());
    let head = format!(
        "H = {:?}\ndef tried(act):\n    try: return act()\n    except BaseException as e: return type(e).__name__\n",
        dir.path().to_str().unwrap()
    );
    let outcome = program(&mut shell, &(head + code));
    let said = text(&outcome.stdout) + &text(&outcome.stderr);
    assert!(!said.contains("the host's own"), "{code}\n{}", shown(&outcome));
    assert!(!said.contains("root:"), "{code}\n{}", shown(&outcome));
    assert!(said.contains("survived"), "{code}\n{}", shown(&outcome));
    let left = std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["secret"], "{code}");
    assert_eq!(std::fs::read(dir.path().join("secret")).unwrap(), b"the host's own", "{code}");
    said
}

#[test]
fn files_of_the_host_are_not_there() {
    let said = attack(
        "import os, glob, pathlib, shutil
for path in [H + '/secret', '/../..' + H + '/secret', '/etc/passwd', '/etc/hostname', '/proc/self/environ',
             '/proc/1/cmdline', '/proc/self/root' + H + '/secret', '/proc/self/fd/0', '/sys/kernel', '/dev/mem', '/dev/sda']:
    print(tried(lambda: open(path).read()), tried(lambda: os.stat(path)), os.path.exists(path))
    print(tried(lambda: open(path, 'rb', opener=lambda p, f: os.open(p, f))))
print(tried(lambda: os.listdir('/proc')), tried(lambda: os.listdir(H)), glob.glob('/etc/*'), glob.glob('/home/*'))
print(tried(lambda: pathlib.Path(H).read_text()), tried(lambda: shutil.copy(H + '/secret', 'x')), tried(lambda: os.chdir(H)))
print(tried(lambda: open(H + '/new', 'w').write('x')), tried(lambda: os.mkdir(H + '/d')), tried(lambda: os.remove(H + '/secret')))
os.makedirs(H); open(H + '/new', 'w').write('x'); shutil.rmtree(H); print(sorted(os.listdir('/')))
print('survived')",
    );
    assert!(!said.contains("True"), "{said}");
}

#[test]
fn links_lead_nowhere() {
    attack(
        "import os
os.symlink(H + '/secret', 'l'); os.symlink(H, 'd'); os.symlink('../' * 30 + H[1:], 'up'); os.symlink('/proc/self/root', 'root')
for path in ['l', 'd/secret', 'up/secret', 'root' + H + '/secret', 'd/../secret']:
    print(tried(lambda: open(path).read()), tried(lambda: open(path, 'w').write('x')), tried(lambda: os.path.realpath(path)))
print(tried(lambda: os.link(H + '/secret', 'hard')), tried(lambda: os.rename(H + '/secret', 'moved')))
fd = os.open('/', os.O_RDONLY)
print(tried(lambda: os.open('../..' + H + '/secret', os.O_RDONLY, dir_fd=fd)), tried(lambda: os.open(H + '/secret', os.O_RDONLY, dir_fd=fd)))
for fd in range(64): tried(lambda: print(os.read(fd, 100))) if fd not in (1, 2) else None
print('survived')",
    );
}

#[test]
fn nothing_is_started_called_or_loaded() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let said = attack(&format!(
        "import os, sys
P = {port}
def system(): return os.system('cat ' + H + '/secret')
def popen(): return os.popen('cat ' + H + '/secret').read()
def run():
    import subprocess; return subprocess.run(['cat', H + '/secret'], capture_output=True).stdout
def shell():
    import subprocess; return subprocess.check_output('id', shell=True)
def fork(): return os.fork()
def execv(): return os.execv('/bin/cat', ['cat', H + '/secret'])
def spawn(): return os.spawnv(os.P_WAIT, '/bin/true', ['true'])
def kill(): return os.kill(1, 9)
def thread():
    import threading; t = threading.Thread(target=print, args=('in a thread',)); t.start(); t.join()
def processes():
    import multiprocessing; multiprocessing.Process(target=print).start()
def connect():
    import socket; s = socket.create_connection(('127.0.0.1', P), 2); s.send(b'x')
def listen():
    import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
def fetch():
    import urllib.request; return urllib.request.urlopen(f'http://127.0.0.1:{{P}}/', timeout=2).read()
def requests_():
    import requests; return requests.get(f'http://127.0.0.1:{{P}}/').text
def http_():
    import http.client; c = http.client.HTTPConnection('127.0.0.1', P); c.request('GET', '/'); return c.getresponse()
def resolve():
    import socket; return socket.gethostbyname('localhost')
def load():
    import ctypes; return ctypes.CDLL(None)
def raw():
    import _bashkit; return _bashkit.http('GET', f'http://127.0.0.1:{{P}}/', [], None, None)
def mapped():
    import mmap; return mmap.mmap(-1, 4096)
for act in [system, popen, run, shell, fork, execv, spawn, kill, thread, processes, connect, listen, fetch, requests_, http_, resolve, load, raw]:
    print(act.__name__, tried(act))
print(tried(mapped) and 'mapped')
print('survived')",
    ));
    assert!(listener.accept().is_err(), "someone called: {said}");
    for line in said.lines().filter(|line| !line.contains("survived") && !line.contains("mapped")) {
        let refused = ["Error", "Exception", "No", "Unsupported"].iter().any(|w| line.contains(w));
        assert!(refused, "{line}\n{said}");
    }
}

#[test]
fn nothing_of_this_process_is_known() {
    let mut shell = patient(Vfs::default());
    let outcome = program(
        &mut shell,
        "import os, sys, platform, socket, getpass
def tried(act):
    try: return act()
    except BaseException as e: return type(e).__name__
print(dict(os.environ), sys.argv, sys.executable, sys.path, os.getcwd())
for module, names in [(os, 'getpid getppid getuid getlogin uname cpu_count'), (platform, 'node uname platform'), (socket, 'gethostname getfqdn'), (getpass, 'getuser')]:
    for name in names.split():
        print(name, tried(lambda: getattr(module, name)()))",
    );
    let said = text(&outcome.stdout);
    assert_eq!(outcome.exit, 0, "{}", shown(&outcome));
    for word in ["CARGO", "RUST", "LD_LIBRARY"] {
        assert!(!said.contains(word), "{word}: {said}");
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    assert!(host.trim().len() < 4 || !said.contains(host.trim()), "{said}");
}

#[test]
fn archives_stay_where_they_are_unpacked() {
    let mut shell = patient(Vfs::default());
    let outcome = program(
        &mut shell,
        "import tarfile, zipfile, io, os, shutil
def tar(name, **more):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode='w') as t:
        i = tarfile.TarInfo(name); i.size = 1
        for k, v in more.items(): setattr(i, k, v)
        t.addfile(i, io.BytesIO(b'x'))
    b.seek(0)
    return tarfile.open(fileobj=b)
os.makedirs('/in/here')
for name, more in [('../up', {}), ('/abs', {}), ('l', dict(type=tarfile.SYMTYPE, linkname='../../x', size=0)), ('dev', dict(type=tarfile.CHRTYPE, size=0))]:
    try: tar(name, **more).extractall('/in/here')
    except Exception as e: print(type(e).__name__)
with zipfile.ZipFile('/evil.zip', 'w') as z: z.writestr('../../outside', 'x')
shutil.unpack_archive('/evil.zip', '/in/here')
print(os.path.exists('/in/up'), os.path.exists('/outside'), os.path.lexists('/in/here/dev'))",
    );
    assert!(text(&outcome.stdout).ends_with("False False False\n"), "{}", shown(&outcome));
}

#[test]
fn programs_know_nothing_of_each_other() {
    let mut shell = patient(Vfs::default());
    let first = "import builtins, sys, os, json; builtins.left = 1; json.left = 2; os.environ['LEFT'] = '3'; sys.setrecursionlimit(5000)";
    assert_eq!(program(&mut shell, first).exit, 0);
    let second = "import builtins, json, os; print(hasattr(builtins, 'left'), hasattr(json, 'left'), 'LEFT' in os.environ)";
    assert_eq!(text(&program(&mut shell, second).stdout), "False False False\n");
    let random = "import random, os, uuid; print(random.random(), os.urandom(8), uuid.uuid4())";
    assert_ne!(program(&mut shell, random).stdout, program(&mut shell, random).stdout);
}

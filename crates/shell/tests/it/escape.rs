//! Attempts to reach the host; passing means that they failed.

use crate::{run, shell, shown, text};
use std::path::Path;

/// A directory of the host with a secret in it.
fn secret() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "the host's own").unwrap();
    let path = dir.path().to_str().unwrap().to_owned();
    (dir, path)
}

/// Runs a script with `$H` as a directory of the host, and shows that
/// nothing of it came in and nothing went out.
fn attack(script: &str) -> String {
    let (dir, path) = secret();
    let mut shell = shell();
    shell.set_env("H", &path);
    let outcome = shell.run(script, b"");
    let said = text(&outcome.stdout) + &text(&outcome.stderr);
    assert!(!said.contains("the host's own"), "{script}\n{}", shown(&outcome));
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["secret"], "{script}");
    assert_eq!(std::fs::read(dir.path().join("secret")).unwrap(), b"the host's own", "{script}");
    said
}

#[test]
fn paths_of_the_host_lead_nowhere() {
    for script in [
        "cat $H/secret",
        "cat /../../..$H/secret",
        "cd $H; cat secret",
        "cat < $H/secret",
        "head -c 100 $H/secret; tail $H/secret; grep -r own $H; find $H; ls -la $H",
        "source $H/secret; . $H/secret; bash $H/secret",
        "cp $H/secret x; cat x; dd if=$H/secret; tar cf - $H; zip x $H/secret",
        "read -r x < $H/secret; echo $x; mapfile < $H/secret; echo $MAPFILE; echo $(<$H/secret)",
        "awk '{print}' $H/secret; awk 'BEGIN{while((getline l<\"'$H'/secret\")>0)print l}'",
        "sed r$H/secret <<< x; sed -n 'w '$H'/new' <<< x; jq -R . $H/secret; jq -n 'input' $H/secret",
        "diff $H/secret /dev/null; cmp $H/secret /dev/null; sort $H/secret; od -c $H/secret",
        "echo x > $H/secret; echo x >> $H/new; touch $H/new; mkdir -p $H/new; rm -rf $H",
        "mkdir -p $H; echo x > $H/new; rm -rf $H/..; rm -rf /",
    ] {
        attack(script);
    }
}

#[test]
fn links_lead_nowhere() {
    attack("ln -s $H/secret l; cat l; ln -s $H d; cat d/secret; ls d/; cd d && cat secret");
    attack("ln $H/secret l; cat l; cp -L $H/secret x; cat x");
    attack(
        "ln -s ../../../../../../../../../..$H/secret l; cat l; echo x > l; cat l; readlink -f l",
    );
    attack("mkdir -p a; ln -s / a/r; cat a/r$H/secret; echo x > a/r$H/secret");
}

#[test]
fn there_are_no_processes_and_no_kernel() {
    let pid = std::process::id();
    for script in [
        "cat /proc/self/environ /proc/1/environ".to_owned(),
        format!("cat /proc/{pid}/cmdline /proc/{pid}/root$H/secret /proc/self/root$H/secret"),
        "ls /proc/self/fd; cat /proc/self/maps; cat /proc/cpuinfo /proc/mounts".into(),
        "cat /sys/kernel/* /dev/mem /dev/kmsg /dev/sda".into(),
        format!("kill -9 {pid}; kill {pid}; kill -0 {pid}"),
        "exec /bin/cat $H/secret; exec 3<$H/secret; cat <&3".into(),
    ] {
        let said = attack(&script);
        assert!(!said.contains("CARGO") && !said.contains("PATH="), "{script}: {said}");
    }
    let mut shell = shell();
    let said = run(&mut shell, "env; set; ps 2>/dev/null; hostname; uname -a; id; pwd");
    for name in ["CARGO_MANIFEST_DIR", "RUSTUP", "LD_LIBRARY_PATH"] {
        assert!(!said.contains(name), "{said}");
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    assert!(host.trim().len() < 4 || !said.contains(host.trim()), "{said}");
}

#[test]
fn there_is_no_network() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; echo x >&3; echo x > /dev/tcp/127.0.0.1/{port}; \
         cat < /dev/tcp/127.0.0.1/{port}; echo x > /dev/udp/127.0.0.1/{port}; \
         curl -s http://127.0.0.1:{port}/; wget -q http://127.0.0.1:{port}/; \
         nc 127.0.0.1 {port}; ssh 127.0.0.1; http GET http://127.0.0.1:{port}/; git clone http://127.0.0.1:{port}/x; true"
    );
    attack(&script);
    assert!(listener.accept().is_err(), "someone called");
}

#[test]
fn there_are_no_languages_of_the_host() {
    let mut shell = shell();
    let python: &[&str] = if cfg!(feature = "python") { &[] } else { &["python", "python3"] };
    for name in ["node", "perl", "ruby", "sqlite3", "gcc", "docker"].iter().chain(python) {
        let outcome = shell.run(&format!("{name} --version"), b"");
        assert!(outcome.exit != 0, "{name}: {}", shown(&outcome));
    }
    // awk and make reach commands of this shell at most.
    attack("awk 'BEGIN{system(\"cat '$H'/secret\"); \"cat '$H'/secret\" | getline x; print x}'");
    attack("printf 'all:\\n\\tcat %s/secret\\n' $H > Makefile; make; echo $(make -f $H/secret)");
    attack(
        "xargs -I{} cat {} <<< $H/secret; find / -exec cat $H/secret \\;; env cat $H/secret; timeout 5 cat $H/secret",
    );
}

/// A tar archive of one entry, made by hand.
fn tar(name: &str, kind: u8, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[136..147].copy_from_slice(b"00000000000");
    header[156] = kind;
    header[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header[257..263].copy_from_slice(b"ustar\0");
    header[263..265].copy_from_slice(b"00");
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut all = header.to_vec();
    all.extend_from_slice(content);
    all.resize(all.len().div_ceil(512) * 512 + 1024, 0);
    all
}

#[test]
fn archives_stay_where_they_are_unpacked() {
    let (dir, path) = secret();
    let up = format!("../../../../../../..{path}/new");
    let names = [
        ("../outside", b'0', ""),
        (up.as_str(), b'0', ""),
        ("/abs/olute", b'0', ""),
        ("l", b'2', "../.."),
    ];
    for (name, kind, link) in names {
        let mut shell = shell();
        shell.view().make_dir_all("/in/here").unwrap();
        shell.view().write("/t.tar", tar(name, kind, link, b"evil")).unwrap();
        let outcome = shell.run("cd /in/here && tar xf /t.tar; echo x > l/through; true", b"");
        assert_eq!(outcome.exit, 0, "{}", shown(&outcome));
        assert!(!shell.view().exists("/in/outside"), "{name}: left its directory");
        assert!(!Path::new(&path).join("new").exists(), "{name}: on the host");
    }
    drop(dir);
}

#[test]
fn zips_stay_where_they_are_unpacked() {
    let mut shell = shell();
    run(
        &mut shell,
        "mkdir -p /in/here; cd /in; echo evil > outside; cd here; zip -q ../x.zip ../outside 2>/dev/null; rm -f ../outside; true",
    );
    // Whatever the name became in the archive, it does not climb.
    shell.run("cd /in/here; unzip -q ../x.zip", b"");
    assert!(!shell.view().exists("/in/outside"));
    // Names patched in place, as an attacker would.
    run(&mut shell, "cd /in; printf evil > aaaoutside; zip -q y.zip aaaoutside; rm aaaoutside");
    let zip = shell.view().read("/in/y.zip").unwrap();
    let text: Vec<u8> = zip.to_vec();
    let mut evil = text.clone();
    for at in 0..evil.len() - 3 {
        if &text[at..at + 3] == b"aaa" {
            evil[at..at + 3].copy_from_slice(b"../");
        }
    }
    shell.view().write("/in/evil.zip", evil).unwrap();
    shell.run("cd /in/here; unzip -q ../evil.zip", b"");
    assert!(!shell.view().exists("/in/outside"), "left its directory");
}

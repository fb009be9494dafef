//! Real programs that change real machines: package managers, a compiler, a
//! database. Each must work inside, show in the diff and leave no trace
//! outside. Packages come from the registries as this machine is set up.

use crate::world::{Answer, FRACTAL, World, able, is_root};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

impl World {
    /// A call with the caller's whole environment: settings of registries and
    /// certificates live there.
    fn real(&self, args: &[&str]) -> Answer {
        let mut command = Command::new(FRACTAL);
        command.current_dir(self.project()).env("FRACTAL_HOME", self.state()).args(args);
        Answer::of(&mut command)
    }

    /// Runs a script with the host's network in a new sandbox.
    fn online(&self, name: &str, script: &str) {
        let mut args = vec!["run", "-q", "--name", name, "--net", "host", "--time", "10m"];
        let settings: Vec<String> = std::env::vars()
            .map(|(key, _)| key)
            .filter(|key| {
                let key = key.to_lowercase();
                ["cert", "ca_", "_ca", "pip_", "npm_", "proxy"]
                    .iter()
                    .any(|part| key.contains(part))
            })
            .collect();
        settings.iter().for_each(|key| args.extend(["-e", key]));
        args.extend(["--", "sh", "-ec", script]);
        let answer = self.real(&args);
        assert_eq!(answer.status, 0, "{script}\n{}\n{}", answer.out, answer.err);
    }

    /// Paths that a sandbox added.
    fn added(&self, name: &str) -> BTreeSet<String> {
        let answer = self.real(&["diff", name, "--json"]);
        let diff: serde_json::Value = serde_json::from_str(&answer.out).expect("an object");
        let changes = diff["changes"].as_array().expect("a list");
        let is_added = |change: &&serde_json::Value| change["kind"] == "added";
        let path = |change: &serde_json::Value| change["path"].as_str().map(str::to_owned);
        changes.iter().filter(is_added).filter_map(path).collect()
    }
}

/// The output of a script on the host.
fn host(script: &str) -> String {
    let output = Command::new("sh").args(["-c", script]).output().expect("a shell");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has(program: &str) -> bool {
    let found = !host(&format!("command -v {program}")).is_empty();
    if !found {
        eprintln!("skipped: no {program}");
    }
    found
}

/// Names, kinds, modes, owners, sizes, times and contents of whole trees.
fn digest(trees: &str) -> String {
    host(&format!(
        "find {trees} -printf '%p %y %m %U %G %s %T@ %l\\n' 2>/dev/null | LC_ALL=C sort | sha256sum; \
         find {trees} -type f -print0 2>/dev/null | LC_ALL=C sort -z | xargs -0 sha256sum 2>/dev/null | sha256sum"
    ))
}

const WRECK: &str = "rm -rf /usr/share /etc/hostname ./*; echo x > /etc/new";

#[test]
fn a_wrecked_machine_is_byte_for_byte_as_before() {
    if !able() {
        return;
    }
    let world = World::new();
    world.write("a", "precious\n");
    std::fs::create_dir(world.project().join("d")).expect("a directory");
    world.write("d/b", "also precious\n");
    let trees = format!("/usr/share /etc {}", world.project().display());
    let before = digest(&trees);
    let status = world.fractal(&["run", "-q", "--name", "wreck", "--", "sh", "-c", WRECK]).status;
    assert_eq!(digest(&trees), before, "the host changed");
    let (_, diff) = world.json(&["diff", "wreck", "--json"]);
    let changes = diff["changes"].as_array().expect("a list");
    let count = |prefix: &str, kind: &str| {
        let below = |path: &str| path == prefix || path.starts_with(&format!("{prefix}/"));
        let of_kind = |change: &&serde_json::Value| {
            change["kind"] == kind && change["path"].as_str().is_some_and(below)
        };
        changes.iter().filter(of_kind).count()
    };
    let project = world.project().display().to_string();
    assert_eq!(count(&project, "deleted"), 3, "a, d and d/b");
    if is_root() {
        assert_eq!(status, 0);
        let entries: usize = host("find /usr/share | wc -l").trim().parse().expect("a number");
        assert_eq!(count("/usr/share", "deleted"), entries, "the diff lists it all");
        assert_eq!(count("/etc/new", "added"), 1);
        assert_eq!(
            count("/etc/hostname", "deleted"),
            usize::from(Path::new("/etc/hostname").exists())
        );
    } else {
        assert_ne!(status, 0, "the system is read-only");
        assert_eq!(count("/usr/share", "deleted") + count("/etc", "added"), 0);
        world.ok(&["run", "--in", "wreck", "--", "test", "-d", "/usr/share", "-a", "!", "-e", "a"]);
    }
}

#[test]
fn apt_installs_inside_only() {
    if !able() || !has("apt-get") {
        return;
    }
    if !is_root() {
        return eprintln!("skipped: no root, whom apt needs");
    }
    let absent = ["sl", "cowsay", "figlet", "toilet"]
        .into_iter()
        .find(|name| host(&format!("dpkg -s {name} 2>/dev/null")).is_empty());
    let package = absent.expect("one of these is not installed");
    let world = World::new();
    let script = format!(
        "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq; \
         apt-get install -y -qq --no-install-recommends {package} > log 2>&1 || {{ cat log; exit 1; }}; \
         dpkg -s {package} | grep -q 'ok installed'"
    );
    world.online("a", &script);
    let added = world.added("a");
    assert!(added.iter().any(|path| path == &format!("/usr/share/doc/{package}")), "{added:?}");
    assert!(added.iter().any(|path| path == &format!("/var/lib/dpkg/info/{package}.list")));
    assert_eq!(host(&format!("dpkg -s {package} 2>/dev/null")), "", "it is absent outside");
}

#[test]
fn pip_installs_inside_only() {
    if !able() || !has("python3") {
        return;
    }
    let world = World::new();
    let script = "python3 -m venv env; env/bin/pip install -q --no-input iniconfig; \
                  env/bin/python -c 'import iniconfig'";
    world.online("p", script);
    let added = world.added("p");
    assert!(added.iter().any(|path| path.ends_with("/iniconfig/__init__.py")), "{}", added.len());
    assert!(!world.project().join("env").exists());
}

#[test]
fn npm_installs_inside_only() {
    if !able() || !has("npm") {
        return;
    }
    let world = World::new();
    world.write("package.json", r#"{"name":"x","version":"1.0.0"}"#);
    let script = "export HOME=$PWD npm_config_cache=$PWD/.cache npm_config_update_notifier=false; \
                  npm install --silent --no-audit --no-fund is-odd@3.0.1; \
                  node -e 'process.exit(require(\"is-odd\")(3) ? 0 : 1)'";
    world.online("n", script);
    let added = world.added("n");
    assert!(added.iter().any(|path| path.ends_with("/node_modules/is-odd/index.js")));
    assert!(!world.project().join("node_modules").exists());
}

#[test]
fn cargo_builds_and_git_commits_inside_only() {
    if !able() || !has("git") {
        return;
    }
    let world = World::new();
    let cargo = host("command -v cargo && rustc --print sysroot");
    let Some(sysroot) = cargo.lines().nth(1).filter(|path| Path::new(path).is_dir()) else {
        return eprintln!("skipped: no cargo that this user can read");
    };
    std::fs::create_dir(world.project().join("src")).expect("a directory");
    world.write("Cargo.toml", "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    world.write("src/main.rs", "fn main() { println!(\"built\"); }\n");
    let script = format!(
        "export PATH={sysroot}/bin:$PATH HOME=$PWD CARGO_HOME=$PWD/.cargo; \
         cargo build -q --offline; ./target/debug/x; git init -q .; git add src; \
         git -c user.name=n -c user.email=e@x commit -qm first; git log --oneline | wc -l"
    );
    let answer = world.real(&["run", "-q", "--name", "c", "--", "sh", "-ec", &script]);
    assert_eq!(answer.out, "built\n1\n", "{}", answer.err);
    let added = world.added("c");
    assert!(added.iter().any(|path| path.ends_with("/target/debug/x")));
    assert!(added.iter().any(|path| path.ends_with("/.git/HEAD")));
    assert!(!world.project().join("target").exists() && !world.project().join(".git").exists());
}

/// Each server has the usual port, the usual socket and its own data.
#[test]
fn three_databases_listen_on_one_port_at_once() {
    if !able() || !is_root() {
        return eprintln!("skipped: no root, who can become the user that the server wants");
    }
    let bin = host("ls -d /usr/lib/postgresql/*/bin | tail -1");
    let bin = bin.trim();
    if bin.is_empty() {
        return eprintln!("skipped: no PostgreSQL");
    }
    let world = World::new();
    let script = |number: usize| {
        format!(
            "PATH={bin}:$PATH; mkdir -m 700 db; chown postgres: db; chmod 755 .; \
             as='setpriv --reuid postgres --regid postgres --clear-groups'; \
             $as initdb -A trust -D db > log; \
             $as pg_ctl -w -D db -l db/log -o '-c fsync=off -p 5432' start > log; \
             $as psql -qh 127.0.0.1 -c 'create table t (n int); insert into t values ({number})' postgres; \
             while [ $(ls /shared | wc -l) -lt 3 ]; do touch /shared/{number}; sleep 0.05; done; \
             $as psql -Ath 127.0.0.1 -c 'select n from t' postgres; $as pg_ctl -w -D db -m fast stop > log"
        )
    };
    // A volume lets the three wait for each other, so that all serve at once.
    world.write(
        "fractal.toml",
        "[templates.meet]\nmounts = [{ at = \"/shared\", volume = \"meet\" }]\n",
    );
    std::thread::scope(|scope| {
        let runs: Vec<_> = (1..=3)
            .map(|number| {
                let (world, script) = (&world, script(number));
                scope.spawn(move || {
                    let name = format!("pg{number}");
                    let args = ["run", "-q", "--name", &name, "--template", "meet", "--time", "3m"];
                    let command = ["--", "sh", "-ec", &script];
                    world.fractal(&[&args[..], &command[..]].concat())
                })
            })
            .collect();
        for (number, run) in runs.into_iter().enumerate() {
            let answer = run.join().expect("it ran");
            let said = (answer.status, answer.out.as_str());
            assert_eq!(said, (0, format!("{}\n", number + 1).as_str()), "{}", answer.err);
        }
    });
}

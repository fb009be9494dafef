//! Neo4j Community, from Maven Central.

use super::bolt::Bolt;
use super::process::{Process, downloads, free_port, has, succeeds};
use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

const VERSION: &str = "5.26.30";
/// Packages that the server reaches into.
const OPENS: [&str; 3] = [
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
];

/// Where its parts lie, which are fetched the first time.
fn parts() -> Option<PathBuf> {
    let dir = downloads("neo4j").join(VERSION);
    let pom = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/neo4j/pom.xml");
    if !dir.join("complete").exists() {
        let into = format!("-DoutputDirectory={}", dir.display());
        let version = format!("-Dversion.neo4j={VERSION}");
        let arguments = ["-q", "-B", "-f", pom, "dependency:copy-dependencies", &into, &version];
        if !has("mvn") || !succeeds("mvn", &arguments) {
            return None;
        }
        // Whoever is stopped on the way begins again.
        fs::write(dir.join("complete"), "").expect("it is written");
    }
    Some(dir)
}

fn start(bolt: &Bolt) -> Process {
    let dir = bolt.dir.path();
    let settings = format!(
        "server.default_listen_address=127.0.0.1\n\
         server.bolt.listen_address=127.0.0.1:{}\n\
         server.http.enabled=false\n\
         server.https.enabled=false\n\
         dbms.security.auth_enabled=false\n\
         dbms.usage_report.enabled=false\n\
         server.memory.pagecache.size=64m\n",
        bolt.port
    );
    fs::create_dir_all(dir.join("conf")).expect("it is made");
    fs::write(dir.join("conf/neo4j.conf"), settings).expect("it is written");
    let parts = parts().expect("they were there before");
    let parts = format!("{}/*", parts.display());
    let (home, conf) =
        (format!("--home-dir={}", dir.display()), format!("--config-dir={}/conf", dir.display()));
    let mut arguments = vec!["-Xmx512m"];
    arguments.extend(OPENS);
    arguments.extend(["-cp", &parts, "org.neo4j.server.CommunityEntryPoint", &home, &conf]);
    Process::start(dir, "java", &arguments)
}

#[test]
fn neo4j_answers_as_the_embedded_index_does() {
    if !has("java") || parts().is_none() {
        return;
    }
    let bolt = Bolt {
        port: free_port(),
        user: "neo4j",
        password: "unused, but never shown",
        database: None,
        dir: tempfile::tempdir().expect("a temporary directory"),
        start,
        process: RefCell::new(None),
    };
    bolt.keeps_its_promises();
}

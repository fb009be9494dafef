//! Which of the caller's variables and files a program inside may see.
//!
//! Both are allow- and deny-lists of data with a reason each. Variables are
//! let through by name, because secrets in them have all kinds of names;
//! secret files are hidden by path, because programs need the rest of a home.

use fractal_model::Network;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Variables that programs need and that hold no secrets.
const ALLOWED: &[&str] = &[
    // Who and where.
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "HOSTNAME",
    // Terminals and taste.
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "CLICOLOR",
    "FORCE_COLOR",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "LS_COLORS",
    "COLUMNS",
    "LINES",
    // Where toolchains live.
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "GOFLAGS",
    "GOPROXY",
    "GOSUMDB",
    "GOTOOLCHAIN",
    "JAVA_HOME",
    "M2_HOME",
    "MAVEN_HOME",
    "GRADLE_HOME",
    "NVM_DIR",
    "NODE_PATH",
    "PYENV_ROOT",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "RBENV_ROOT",
    "GEM_HOME",
    "GEM_PATH",
    "PERL5LIB",
    "LD_LIBRARY_PATH",
    "PKG_CONFIG_PATH",
    "CC",
    "CXX",
    "CFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
    "MAKEFLAGS",
    "RUSTFLAGS",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "DEBIAN_FRONTEND",
    "CI",
    "SOURCE_DATE_EPOCH",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    // Where certificates live: without them nothing can be fetched.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "PIP_DISABLE_PIP_VERSION_CHECK",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_FIND_LINKS",
    "CARGO_HTTP_CAINFO",
    "NIX_SSL_CERT_FILE",
];

/// Where package managers look, which may carry a password in the address:
/// only with the host's network, where they are of use.
const ALLOWED_WITH_NETWORK: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "NPM_CONFIG_REGISTRY",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "CARGO_REGISTRIES_CRATES_IO_PROTOCOL",
];

/// The part of the caller's environment that a run gets.
pub fn filter(
    environment: &[(OsString, OsString)],
    network: &Network,
) -> Vec<(OsString, OsString)> {
    let wide = *network == Network::Host;
    let allowed = |key: &OsStr| {
        let Some(key) = key.to_str() else { return false };
        ALLOWED.contains(&key)
            || key.starts_with("LC_")
            || (wide && ALLOWED_WITH_NETWORK.contains(&key))
    };
    environment.iter().filter(|(key, _)| allowed(key)).cloned().collect()
}

/// Files and directories of a home that hold credentials.
const SECRET: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".oci",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/op",
    ".config/sops",
    ".config/doctl",
    ".config/rclone",
    ".docker/config.json",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".terraform.d/credentials.tfrc.json",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings-security.xml",
    ".password-store",
    ".local/share/keyrings",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".config/Code/User/globalStorage",
    ".claude",
    ".claude.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
];

/// Files of the system that hold credentials, and what root could read. Not
/// `shadow-` and `gshadow-`: what makes users replaces them, which nobody can do
/// with a path that is covered, and they hold nothing that `shadow` does not.
const SECRET_SYSTEM: &[&str] = &[
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
    "/etc/krb5.keytab",
    "/etc/kubernetes",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
];

/// Paths hidden by default, for a user with this home.
pub fn default_hidden(home: Option<&Path>) -> Vec<String> {
    let in_home = home.into_iter().flat_map(|home| SECRET.iter().map(move |path| home.join(path)));
    let mut list: Vec<String> = in_home.map(|path| path.display().to_string()).collect();
    list.extend(SECRET_SYSTEM.iter().map(ToString::to_string));
    list
}

/// The home of the user we run as, for callers who come without variables:
/// what it holds is as secret as ever.
pub fn user_home() -> Option<std::path::PathBuf> {
    let own = rustix::process::geteuid().as_raw().to_string();
    home_in(&std::fs::read_to_string("/etc/passwd").ok()?, &own)
}

fn home_in(passwd: &str, uid: &str) -> Option<std::path::PathBuf> {
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut homes = fields.filter(|fields| fields.get(2) == Some(&uid));
    homes.next()?.get(5).filter(|home| home.starts_with('/')).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_stay_outside_and_proxies_need_the_network() {
        let env: Vec<(OsString, OsString)> =
            ["PATH", "GITHUB_TOKEN", "LC_ALL", "AWS_SECRET_ACCESS_KEY", "http_proxy"]
                .iter()
                .map(|key| ((*key).into(), "x".into()))
                .collect();
        let keys = |network: &Network| {
            filter(&env, network)
                .into_iter()
                .map(|(key, _)| key.into_string().expect("ASCII"))
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&Network::None), ["PATH", "LC_ALL"]);
        let passwd = "root:x:0:0::/root:/bin/sh\nbad\nme:x:7:7::/home/me:/bin/sh\nno:x:8:8:::\n";
        assert_eq!(home_in(passwd, "7"), Some("/home/me".into()));
        assert_eq!((home_in(passwd, "8"), home_in(passwd, "9")), (None, None));
        assert_eq!(keys(&Network::Host), ["PATH", "LC_ALL", "http_proxy"]);
    }
}

//! Files that run by themselves: nobody types their name, and yet what is in
//! them is executed when someone enters the directory, opens it in an editor,
//! logs in or commits. A change to one of them deserves a second look before
//! it is promoted. The table flags; it forbids nothing.

use fractal_model::SandboxPath;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Where a pattern may stand.
#[derive(Clone, Copy)]
enum At {
    /// As the last components of any path.
    Anywhere(&'static str),
    /// Exactly there, from the sandbox's root.
    Root(&'static str),
}

/// Patterns by component: `*` stands for one component or a part of one, a
/// last `**` for anything below. Each with who runs it and when.
#[rustfmt::skip]
const TABLE: &[(At, &str)] = &[
    (At::Anywhere(".git/hooks/*"), "git, around commit, checkout, merge and push"),
    (At::Anywhere(".git/modules/**"), "git: hooks and config of submodules"),
    (At::Anywhere(".git/config"), "git: aliases, fsmonitor, pagers and filters are commands"),
    (At::Anywhere(".git/config.worktree"), "git: as .git/config"),
    (At::Anywhere(".git/info/attributes"), "git: chooses the filters that run on checkout"),
    (At::Anywhere(".git"), "git: a file here moves the repository, with its hooks"),
    (At::Anywhere(".gitattributes"), "git: chooses the filters that run on checkout"),
    (At::Anywhere(".gitmodules"), "git: where submodules are fetched from"),
    (At::Anywhere(".gitconfig"), "git: for every repository of the user"),
    (At::Anywhere(".config/git/**"), "git: for every repository of the user"),
    (At::Anywhere(".hg/hgrc"), "mercurial: hooks"),
    (At::Anywhere(".husky/**"), "husky: git hooks kept in the tree"),
    (At::Anywhere(".githooks/*"), "git hooks kept in the tree"),
    (At::Anywhere(".pre-commit-config.yaml"), "pre-commit, at every commit"),
    (At::Anywhere("lefthook.yml"), "lefthook, at every commit"),
    (At::Anywhere("fractal.toml"), "fractal: a stage's publish command runs on the host"),
    (At::Anywhere(".envrc"), "direnv, on entering the directory"),
    (At::Anywhere(".autoenv"), "autoenv, on entering the directory"),
    (At::Anywhere(".mise.toml"), "mise, on entering the directory"),
    (At::Anywhere("mise.toml"), "mise, on entering the directory"),
    (At::Anywhere(".vscode/tasks.json"), "VS Code: tasks may run on opening the folder"),
    (At::Anywhere(".vscode/settings.json"), "VS Code: settings name programs that it starts"),
    (At::Anywhere(".vscode/launch.json"), "VS Code: on starting the debugger"),
    (At::Anywhere(".vscode/extensions.json"), "VS Code: offers extensions to install"),
    (At::Anywhere(".vscode/mcp.json"), "VS Code: starts these servers"),
    (At::Anywhere("*.code-workspace"), "VS Code: tasks and settings of a workspace"),
    (At::Anywhere(".devcontainer/**"), "editors, on opening the folder in a container"),
    (At::Anywhere(".devcontainer.json"), "editors, on opening the folder in a container"),
    (At::Anywhere(".idea/**"), "JetBrains: run configurations and start-up tasks"),
    (At::Anywhere(".exrc"), "vi, on starting in the directory"),
    (At::Anywhere(".nvim.lua"), "neovim, on starting in the directory"),
    (At::Anywhere(".vimrc"), "vim, on starting"),
    (At::Anywhere(".dir-locals.el"), "emacs, on visiting a file in the directory"),
    (At::Anywhere(".emacs"), "emacs, on starting"),
    (At::Anywhere(".config/nvim/**"), "neovim, on starting"),
    (At::Anywhere(".mcp.json"), "agents: starts these servers"),
    (At::Anywhere(".claude/settings*.json"), "Claude Code: hooks and allowed commands"),
    (At::Anywhere(".claude/hooks/**"), "Claude Code: hooks"),
    (At::Anywhere(".claude/commands/**"), "Claude Code: commands that steer the agent"),
    (At::Anywhere(".claude/agents/**"), "Claude Code: agents"),
    (At::Anywhere(".claude/skills/**"), "Claude Code: skills"),
    (At::Anywhere("CLAUDE.md"), "Claude Code: instructions read on starting"),
    (At::Anywhere("AGENTS.md"), "agents: instructions read on starting"),
    (At::Anywhere(".cursor/**"), "Cursor: rules, servers and hooks"),
    (At::Anywhere(".cursorrules"), "Cursor: instructions read on starting"),
    (At::Anywhere(".windsurf/**"), "Windsurf: rules and servers"),
    (At::Anywhere(".codex/**"), "Codex: configuration and servers"),
    (At::Anywhere(".gemini/**"), "Gemini: configuration and servers"),
    (At::Anywhere(".bashrc"), "bash, in every terminal"),
    (At::Anywhere(".bash_profile"), "bash, on login"),
    (At::Anywhere(".bash_login"), "bash, on login"),
    (At::Anywhere(".bash_logout"), "bash, on logout"),
    (At::Anywhere(".bash_aliases"), "bash, in every terminal (Debian)"),
    (At::Anywhere(".profile"), "login shells and display managers"),
    (At::Anywhere(".zshrc"), "zsh, in every terminal"),
    (At::Anywhere(".zshenv"), "zsh, always, scripts included"),
    (At::Anywhere(".zprofile"), "zsh, on login"),
    (At::Anywhere(".zlogin"), "zsh, on login"),
    (At::Anywhere(".config/fish/config.fish"), "fish, in every terminal"),
    (At::Anywhere(".config/fish/conf.d/*"), "fish, in every terminal"),
    (At::Anywhere(".config/fish/functions/*"), "fish: replaces commands by name"),
    (At::Anywhere(".inputrc"), "readline: keys that type commands"),
    (At::Anywhere(".tmux.conf"), "tmux, on starting"),
    (At::Anywhere(".ssh/rc"), "sshd, on login"),
    (At::Anywhere(".ssh/authorized_keys"), "sshd: who may log in"),
    (At::Anywhere(".ssh/config"), "ssh: ProxyCommand is a command"),
    (At::Anywhere(".config/autostart/*"), "desktops, on login"),
    (At::Anywhere(".config/systemd/user/**"), "systemd, for the user"),
    (At::Anywhere(".local/share/systemd/user/**"), "systemd, for the user"),
    (At::Anywhere(".config/environment.d/*"), "systemd: environment of the user's session"),
    (At::Anywhere(".xinitrc"), "X, on starting"),
    (At::Anywhere(".xprofile"), "X, on login"),
    (At::Anywhere(".npmrc"), "npm: names programs and registries"),
    (At::Anywhere(".yarnrc.yml"), "yarn: yarnPath is a program"),
    (At::Anywhere(".cargo/config.toml"), "cargo: wrappers, linkers and runners are programs"),
    (At::Anywhere(".cargo/config"), "cargo: as config.toml"),
    (At::Anywhere(".gdbinit"), "gdb, on starting in the directory"),
    (At::Anywhere(".lldbinit"), "lldb, on starting in the directory"),
    (At::Anywhere(".pdbrc"), "pdb, on starting in the directory"),
    (At::Anywhere("site-packages/*.pth"), "python: lines with import run at every start"),
    (At::Anywhere("dist-packages/*.pth"), "python: lines with import run at every start"),
    (At::Anywhere("sitecustomize.py"), "python, at every start"),
    (At::Anywhere("usercustomize.py"), "python, at every start"),
    (At::Anywhere("conftest.py"), "pytest, before any test is chosen"),
    (At::Root("etc/ld.so.preload"), "the loader: into every program"),
    (At::Root("etc/ld.so.conf"), "the loader: where libraries come from"),
    (At::Root("etc/ld.so.conf.d/*"), "the loader: where libraries come from"),
    (At::Root("etc/profile"), "every login shell"),
    (At::Root("etc/profile.d/*"), "every login shell"),
    (At::Root("etc/environment"), "PAM: the environment of every session"),
    (At::Root("etc/bash.bashrc"), "every bash"),
    (At::Root("etc/zsh/*"), "every zsh"),
    (At::Root("etc/crontab"), "cron"),
    (At::Root("etc/cron*/*"), "cron, and run-parts by the day"),
    (At::Root("var/spool/cron/**"), "cron: the users' tables"),
    (At::Root("var/spool/at/**"), "at"),
    (At::Root("etc/systemd/**"), "systemd: units and generators"),
    (At::Root("usr/lib/systemd/**"), "systemd: units and generators"),
    (At::Root("usr/local/lib/systemd/**"), "systemd: units and generators"),
    (At::Root("lib/systemd/**"), "systemd: units and generators"),
    (At::Root("etc/init.d/*"), "init, at boot"),
    (At::Root("etc/rc.local"), "init, at boot"),
    (At::Root("etc/udev/rules.d/*"), "udev, when a device appears"),
    (At::Root("etc/modprobe.d/*"), "modprobe: install lines are commands"),
    (At::Root("etc/pam.d/*"), "PAM, at every login"),
    (At::Root("etc/sudoers"), "sudo: who may do what"),
    (At::Root("etc/sudoers.d/*"), "sudo: who may do what"),
    (At::Root("etc/ssh/*"), "sshd and ssh of every user"),
    (At::Root("etc/xdg/autostart/*"), "desktops, on login"),
    (At::Root("etc/update-motd.d/*"), "PAM, on login"),
    (At::Root("etc/apt/apt.conf.d/*"), "apt: hooks around every installation"),
    (At::Root("etc/NetworkManager/dispatcher.d/**"), "NetworkManager, when a network comes up"),
];

/// The table by the first component of its patterns, so that an entry costs
/// one lookup per component and not one comparison per row. Patterns that
/// start with a wildcard stand under no name.
static INDEX: LazyLock<HashMap<&[u8], Vec<At>>> = LazyLock::new(|| {
    let mut index: HashMap<&[u8], Vec<At>> = HashMap::new();
    for (at, _) in TABLE {
        let (At::Anywhere(pattern) | At::Root(pattern)) = at;
        let first = pattern.split('/').next().unwrap_or_default();
        let key: &[u8] = if first.contains('*') { b"" } else { first.as_bytes() };
        index.entry(key).or_default().push(*at);
    }
    index
});

/// Whether a file at this path runs by itself.
pub fn is_autorun(path: &SandboxPath) -> bool {
    let parts: Vec<&[u8]> = path.components().collect();
    (0..parts.len()).any(|from| {
        let rows = [parts[from], b""].map(|key| INDEX.get(key));
        rows.into_iter().flatten().flatten().any(|at| match at {
            At::Root(pattern) => from == 0 && matches(pattern, &parts),
            At::Anywhere(pattern) => matches(pattern, &parts[from..]),
        })
    })
}

/// Whether files below this path would run by themselves: a link there puts
/// any directory in the place of one that is looked into.
pub fn is_above_autorun(path: &SandboxPath) -> bool {
    let parts: Vec<&[u8]> = path.components().collect();
    (0..parts.len()).any(|from| {
        let rows = INDEX.get(parts[from]).into_iter().flatten();
        rows.into_iter().any(|at| match at {
            At::Root(pattern) => from == 0 && begins(pattern, &parts),
            At::Anywhere(pattern) => begins(pattern, &parts[from..]),
        })
    })
}

fn begins(pattern: &str, parts: &[&[u8]]) -> bool {
    let wants: Vec<&str> = pattern.split('/').collect();
    let fits = |(want, part): (&&str, &&[u8])| matches_part(want.as_bytes(), part);
    wants.len() > parts.len() && wants.iter().zip(parts).all(fits)
}

fn matches(pattern: &str, parts: &[&[u8]]) -> bool {
    let mut parts = parts.iter();
    for want in pattern.split('/') {
        let Some(part) = parts.next() else { return false };
        if want == "**" {
            return true;
        }
        if !matches_part(want.as_bytes(), part) {
            return false;
        }
    }
    parts.next().is_none()
}

/// At most one `*` per component, which is all the table needs.
fn matches_part(want: &[u8], part: &[u8]) -> bool {
    match want.iter().position(|byte| *byte == b'*') {
        None => want == part,
        Some(star) => {
            let (before, after) = (&want[..star], &want[star + 1..]);
            part.len() + 1 >= want.len() && part.starts_with(before) && part.ends_with(after)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expect: bool) {
        let parsed = SandboxPath::parse(path).expect("a valid path");
        assert_eq!(is_autorun(&parsed), expect, "{path}");
    }

    #[test]
    fn links_in_the_place_of_watched_directories_are_flagged() {
        let above = |path: &str| is_above_autorun(&SandboxPath::parse(path).expect("a path"));
        for path in ["/p/.vscode", "/p/.husky", "/p/.git/hooks", "/p/.cargo", "/etc/cron.d"] {
            assert!(above(path), "{path}");
        }
        for path in ["/p/src", "/p/.envrc", "/p/vscode", "/p/cron.d"] {
            assert!(!above(path), "{path}");
        }
    }

    #[test]
    fn files_that_run_by_themselves_are_flagged() {
        for path in [
            "/p/.git/hooks/pre-commit",
            "/p/.git/config",
            "/p/.git/modules/sub/hooks/post-checkout",
            "/p/sub/.git",
            "/p/.envrc",
            "/p/.vscode/tasks.json",
            "/p/.vscode/settings.json",
            "/p/.idea/workspace.xml",
            "/p/.mcp.json",
            "/p/.husky/_/husky.sh",
            "/p/my.code-workspace",
            "/p/.claude/settings.json",
            "/p/.claude/settings.local.json",
            "/p/.cursor/rules/x.mdc",
            "/home/u/.bashrc",
            "/root/.zshenv",
            "/home/u/.config/fish/config.fish",
            "/home/u/.ssh/rc",
            "/home/u/.ssh/authorized_keys",
            "/home/u/.config/systemd/user/x.service",
            "/etc/ld.so.preload",
            "/etc/profile.d/x.sh",
            "/etc/cron.d/x",
            "/etc/cron.daily/x",
            "/etc/crontab",
            "/var/spool/cron/crontabs/root",
            "/etc/systemd/system/x.service",
            "/usr/lib/python3/site-packages/x.pth",
            "/v/lib/python3.11/site-packages/sitecustomize.py",
        ] {
            check(path, true);
        }
    }

    #[test]
    fn other_files_are_not() {
        for path in [
            "/",
            "/p/Makefile",
            "/p/src/main.rs",
            "/p/.git/objects/ab/cdef",
            "/p/.git/hooks",
            "/p/.git/HEAD",
            "/p/hooks/pre-commit",
            "/p/config",
            "/p/x.pth",
            "/p/etc/profile.d/x.sh",
            "/p/bashrc",
            "/p/.ssh/known_hosts",
            "/etc/hostname",
        ] {
            check(path, false);
        }
    }

    #[test]
    fn every_pattern_matches_a_path_made_from_it() {
        for (at, reason) in TABLE {
            let (At::Anywhere(pattern) | At::Root(pattern)) = at;
            assert!(!reason.is_empty(), "{pattern}");
            check(&format!("/{}", pattern.replace("**", "x/y").replace('*', "x")), true);
        }
    }
}

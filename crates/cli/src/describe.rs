//! The command tree as data: JSON for programs, Markdown for `docs/cli.md`.

use clap::{Arg, ArgAction, Command};
use serde_json::{Value, json};

/// A command with its arguments and everything below it.
pub fn json(command: &Command) -> Value {
    let args: Vec<Value> = shown(command).map(argument).collect();
    let commands: Vec<Value> =
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(json).collect();
    json!({
        "name": command.get_name(),
        "aliases": command.get_visible_aliases().collect::<Vec<_>>(),
        "about": command.get_about().map(ToString::to_string),
        "description": command.get_long_about().map(ToString::to_string),
        "args": args,
        "commands": commands,
    })
}

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set())
}

fn argument(arg: &Arg) -> Value {
    let default: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
    let values: Vec<_> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    json!({
        "name": arg.get_id().as_str(),
        "long": arg.get_long(),
        "short": arg.get_short(),
        "env": arg.get_env().map(|env| env.to_string_lossy()),
        "help": arg.get_help().map(ToString::to_string),
        "default": if takes_value(arg) { default.first() } else { None },
        "value": value_name(arg),
        "values": if takes_value(arg) { values } else { Vec::new() },
        "required": arg.is_required_set(),
        "repeatable": is_repeatable(arg),
        "global": arg.is_global_set(),
    })
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

fn value_name(arg: &Arg) -> Option<String> {
    let named = || arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    takes_value(arg).then(|| named().unwrap_or_else(|| arg.get_id().as_str().to_uppercase()))
}

fn is_repeatable(arg: &Arg) -> bool {
    let many = arg.get_num_args().is_some_and(|range| range.max_values() > 1);
    matches!(arg.get_action(), ArgAction::Append) || many
}

/// The reference page.
pub fn markdown(root: &mut Command) -> String {
    let mut text = String::from(
        "# Command line\n\n\
         Written by `fractal help --markdown > docs/cli.md`; a test keeps it up to date.\n",
    );
    text.push_str(&format!("\n## Every verb\n\n{}", rows(root.get_arguments(), true)));
    let verbs: Vec<Command> = root.get_subcommands().cloned().collect();
    verbs.into_iter().for_each(|mut verb| section(&mut verb, "fractal", &mut text));
    text
}

fn section(command: &mut Command, above: &str, text: &mut String) {
    let path = format!("{above} {}", command.get_name());
    text.push_str(&format!("\n## {path}\n\n"));
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        text.push_str(&format!("{about}\n\n"));
    }
    let usage = command.render_usage().to_string();
    text.push_str(&format!("```\n{}\n```\n", usage.trim_start_matches("Usage: ")));
    let aliases: Vec<_> = command.get_visible_aliases().map(|name| format!("`{name}`")).collect();
    if !aliases.is_empty() {
        text.push_str(&format!("\nAlso {}.\n", aliases.join(", ")));
    }
    let table = rows(command.get_arguments(), false);
    if !table.is_empty() {
        text.push_str(&format!("\n{table}"));
    }
    let below: Vec<Command> = command.get_subcommands().cloned().collect();
    below.into_iter().for_each(|mut sub| section(&mut sub, &path, text));
}

fn rows<'a>(args: impl Iterator<Item = &'a Arg>, global: bool) -> String {
    let own = |arg: &&Arg| {
        let is_help = matches!(arg.get_id().as_str(), "help" | "version");
        !arg.is_hide_set() && arg.is_global_set() == global && !is_help
    };
    let lines: Vec<String> = args.filter(own).map(row).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("| argument | variable | meaning |\n|---|---|---|\n{}", lines.concat())
}

fn row(arg: &Arg) -> String {
    let env = arg.get_env().map_or(String::new(), |env| format!("`{}`", env.to_string_lossy()));
    let mut help = arg.get_help().map_or(String::new(), ToString::to_string);
    if let Some(default) = arg.get_default_values().first().filter(|_| takes_value(arg)) {
        help.push_str(&format!(" [default: {}]", default.to_string_lossy()));
    }
    format!("| `{}` | {env} | {} |\n", synopsis(arg), help.replace('|', "\\|"))
}

fn synopsis(arg: &Arg) -> String {
    let value = value_name(arg);
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    match (names.is_empty(), value) {
        (true, value) => value.unwrap_or_default(),
        (false, Some(value)) => format!("{} {value}", names.join(", ")),
        (false, None) => names.join(", "),
    }
}

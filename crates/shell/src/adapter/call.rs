//! Commands of ours as bashkit calls them.

use super::stubs;
use crate::command::{Call, Command};
use crate::commands::{Instead, OwnCommand};
use crate::own::Own;
use async_trait::async_trait;
use bashkit::{
    Builtin, BuiltinContext, ExecResult, ExecutionBudget, ExecutionPlan, Result, SubCommand,
};
use fractal_fs::Vfs;
use std::sync::{Arc, PoisonError};

/// What all commands of a session share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) view: Vfs,
    pub(super) own: Arc<Own>,
}

/// A command that the embedding program registered.
pub(super) struct Registered {
    pub(super) name: String,
    pub(super) command: Arc<dyn Command>,
    pub(super) shared: Shared,
}

/// One of [`crate::commands`].
pub(super) struct OurOwn {
    pub(super) command: &'static OwnCommand,
    pub(super) shared: Shared,
}

impl Shared {
    /// Takes what a stopped command said last.
    pub(super) fn last_words(&self) -> Option<crate::Output> {
        self.own.last_words.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What a command answers; kept aside if the script is over by now.
fn answered(call: &Call, output: crate::Output) -> ExecResult {
    if call.stopped() {
        let mut words = call.own.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        *words = Some(output.clone());
    }
    result(output)
}

fn budget(ctx: &BuiltinContext) -> Option<ExecutionBudget> {
    ctx.execution_budget()?.try_with(Clone::clone).ok()
}

fn with_call<T>(
    name: &str,
    shared: &Shared,
    ctx: &BuiltinContext,
    work: impl FnOnce(&Call) -> T,
) -> T {
    let budget = budget(ctx);
    let stop = || budget.as_ref().is_some_and(|budget| budget.check().is_err());
    let cwd = ctx.cwd.to_string_lossy();
    work(&Call {
        name,
        args: ctx.args,
        stdin: ctx.stdin_bytes().unwrap_or_default(),
        view: &shared.view,
        env: ctx.env,
        cwd: &cwd,
        own: &shared.own,
        stop: &stop,
    })
}

fn result(output: crate::Output) -> ExecResult {
    ExecResult {
        stdout: output.stdout.into(),
        stderr: output.stderr.into(),
        exit_code: output.exit,
        ..ExecResult::default()
    }
}

#[async_trait]
impl Builtin for Registered {
    async fn execute(&self, ctx: BuiltinContext<'_>) -> Result<ExecResult> {
        Ok(with_call(&self.name, &self.shared, &ctx, |call| {
            answered(call, self.command.call(call))
        }))
    }
}

#[async_trait]
impl Builtin for OurOwn {
    async fn execute(&self, ctx: BuiltinContext<'_>) -> Result<ExecResult> {
        let command = self.command;
        Ok(with_call(command.name, &self.shared, &ctx, |call| answered(call, (command.call)(call))))
    }

    async fn execution_plan(&self, ctx: &BuiltinContext<'_>) -> Result<Option<ExecutionPlan>> {
        let command = self.command;
        let instead = with_call(command.name, &self.shared, ctx, command.instead);
        let bashkits = || format!("{}{}", stubs::BASHKIT_DIR, command.name);
        let mut commands = match instead {
            None => return Ok(None),
            Some(Instead::Bashkits) => {
                vec![sub_command([&[bashkits()], ctx.args].concat())]
            }
            Some(Instead::With { args, input, silent }) => {
                let mut words = match silent {
                    false => vec![bashkits()],
                    true => {
                        let script = format!("{} \"$@\" > /dev/null", bashkits());
                        vec!["bash".into(), "-c".into(), script, command.name.into()]
                    }
                };
                words.extend(args);
                let mut only = sub_command(words);
                if let Some(input) = input {
                    let path = with_call(command.name, &self.shared, ctx, |call| call.path(&input));
                    let Ok(content) = self.shared.view.read(path) else {
                        let text = format!("{}: cannot read {input}\n", command.name);
                        let say = ["sh", "-c", "printf '%s' \"$1\" >&2; exit 2", "sh", &text];
                        let commands = vec![sub_command(say.map(str::to_owned).to_vec())];
                        return Ok(Some(ExecutionPlan::Batch { commands }));
                    };
                    only.stdin = Some(content.to_vec().into());
                }
                vec![only]
            }
            Some(Instead::Run(commands)) => commands.into_iter().map(sub_command).collect(),
        };
        if let Some(first) = commands.first_mut()
            && first.stdin.is_none()
        {
            first.stdin = ctx.stdin.cloned();
        }
        Ok(Some(ExecutionPlan::Batch { commands }))
    }
}

fn sub_command(mut words: Vec<String>) -> SubCommand {
    let args = words.split_off(1);
    SubCommand { name: words.remove(0), args, stdin: None, assignments: Vec::new() }
}

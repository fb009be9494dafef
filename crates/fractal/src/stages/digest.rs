//! What exactly would come into a stage, in one number: an approval is given
//! to it, and to nothing else.

use crate::apply::{Content, What, digest_of_attributes};
use crate::verbs::promote::Wish;
use fractal_jail::layer::{Attributes, View};
use fractal_model::{Error, Result, SandboxPath};
use sha2::{Digest, Sha256};
use std::io;

/// The digest of a list of wishes: paths from the project's root, and for each
/// what it shall hold. Owners and times are left out: they are not content.
pub fn digest(wishes: &[Wish], ours: &View, project: &SandboxPath) -> Result<String> {
    let mut whole = Sha256::new();
    for wish in wishes {
        let path = wish.path.moved(project, &SandboxPath::root());
        field(&mut whole, if path.is_some() { b"in" } else { b"out" });
        field(&mut whole, path.as_ref().unwrap_or(&wish.path).relative());
        let Some(new) = &wish.new else {
            field(&mut whole, b"gone");
            continue;
        };
        match &new.what {
            What::Special(_) => field(&mut whole, b"special"),
            What::Directory => field(&mut whole, b"directory"),
            What::Symlink(target) => field(&mut whole, &[b"link ", target.as_slice()].concat()),
            What::File(content) => field(&mut whole, &content_digest(content, ours, &wish.path)?),
        }
        field(&mut whole, format!("{:o}", new.mode).as_bytes());
        let noted = match (&new.what, &new.noted) {
            (What::File(Content::Bytes(_)), Some(noted)) => noted.new.clone(),
            (What::File(Content::Bytes(_)), None) => Attributes::default(),
            _ => ours.attributes(&wish.path)?,
        };
        field(&mut whole, digest_of_attributes(&noted).as_bytes());
    }
    Ok(whole.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// With its length, so that no two lists run together.
fn field(whole: &mut Sha256, bytes: &[u8]) {
    whole.update((bytes.len() as u64).to_be_bytes());
    whole.update(bytes);
}

fn content_digest(content: &Content, ours: &View, path: &SandboxPath) -> Result<Vec<u8>> {
    let mut hasher = Sha256::new();
    match content {
        Content::Bytes(bytes) => hasher.update(bytes),
        _ => drop(io::copy(&mut ours.open_file(path)?, &mut hasher).map_err(|error| {
            Error::internal(format!("cannot read {path} in the sandbox: {error}"))
        })?),
    }
    Ok(hasher.finalize().to_vec())
}

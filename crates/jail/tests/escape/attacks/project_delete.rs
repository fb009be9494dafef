//! Everything below the project and beside it is deleted.

use crate::arena::canary_sings;
use crate::harness::Attack;

attack!(
    the_real_files_cannot_be_deleted,
    Attack::python(
        r#"
import shutil
os.rename(f"{arena}/outside", f"{arena}/elsewhere")
shutil.rmtree(f"{arena}/elsewhere")
for entry in os.scandir(f"{arena}/project"):
    os.unlink(entry.path)
"#
    )
    .prepare(|arena| {
        arena.canary("project/file");
        arena.canary("outside/deep/file");
    })
    .verdict(|arena| {
        canary_sings(&arena.path("project/file"))?;
        canary_sings(&arena.path("outside/deep/file"))
    })
);

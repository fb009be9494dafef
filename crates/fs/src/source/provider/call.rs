//! Text that is always the same, and functions of the embedding program.

use super::{Context, Made, Names, Provide};
use crate::source::Item;
use bytes::Bytes;

/// A file that is always the same.
pub struct Text(Bytes);

impl Text {
    /// A file with this text.
    pub fn new(text: impl Into<Bytes>) -> Text {
        Text(text.into())
    }
}

impl Provide for Text {
    fn read(&self, _: &Context) -> Result<Made, String> {
        Ok(Made::Bytes(self.0.clone()))
    }
}

type List = Box<dyn Fn(&Context) -> Result<Names, String> + Send + Sync>;
type Read = Box<dyn Fn(&Context) -> Result<Made, String> + Send + Sync>;
type Find = Box<dyn Fn(&Context) -> Result<Option<Item>, String> + Send + Sync>;

/// Functions that make a file, or a directory and the files in it.
#[derive(Default)]
pub struct Call {
    list: Option<List>,
    read: Option<Read>,
    find: Option<Find>,
}

impl Call {
    /// Makes the content of files.
    pub fn reads<M: Into<Made>>(
        self,
        read: impl Fn(&Context) -> Result<M, String> + Send + Sync + 'static,
    ) -> Call {
        Call { read: Some(Box::new(move |context| read(context).map(Into::into))), ..self }
    }

    /// Makes the names of directories.
    pub fn lists<I: IntoIterator<Item = Item>>(
        self,
        list: impl Fn(&Context) -> Result<I, String> + Send + Sync + 'static,
    ) -> Call
    where
        I::IntoIter: Send + 'static,
    {
        let list = move |context: &Context| Ok(Box::new(list(context)?.into_iter()) as Names);
        Call { list: Some(Box::new(list)), ..self }
    }

    /// Finds names that are not listed; for live mounts.
    pub fn finds(
        self,
        find: impl Fn(&Context) -> Result<Option<Item>, String> + Send + Sync + 'static,
    ) -> Call {
        Call { find: Some(Box::new(find)), ..self }
    }
}

impl Provide for Call {
    fn list(&self, context: &Context) -> Result<Names, String> {
        match &self.list {
            Some(list) => list(context),
            None => Ok(Box::new(std::iter::empty())),
        }
    }

    fn read(&self, context: &Context) -> Result<Made, String> {
        let read = self.read.as_ref().ok_or("it makes no files")?;
        read(context)
    }

    fn find(&self, context: &Context) -> Result<Option<Item>, String> {
        self.find.as_ref().map_or(Ok(None), |find| find(context))
    }

    fn has_unlisted(&self) -> bool {
        self.find.is_some()
    }
}

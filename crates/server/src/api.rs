//! The table of operations: what is routed and what is described come from
//! one entry, so that neither can be without the other.

use crate::state::Shared;
use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use fractal::model::Verb;
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// Makes the schema of one type.
pub type Describe = fn(&mut SchemaGenerator) -> Schema;

/// One operation of the interface.
pub struct Operation {
    pub method: &'static str,
    pub path: &'static str,
    /// Its name in generated clients.
    pub id: &'static str,
    pub summary: &'static str,
    /// What a key must be allowed; none for what everybody may see.
    pub verb: Option<Verb>,
    pub body: Option<Taken>,
    pub query: Option<Describe>,
    pub answer: Answer,
    /// Whether it acts: then it can be made safe to repeat.
    pub acts: bool,
}

/// What a request carries.
#[derive(Clone, Copy)]
pub enum Taken {
    Json(Describe),
    /// The content of a file.
    Bytes,
}

/// What comes back when all is well.
pub enum Answer {
    Json(u16, Describe),
    /// JSON, or events as they happen when they are asked for.
    Stream(Describe),
    Events,
    /// The content of a file.
    Bytes,
    /// Messages both ways, after an upgrade.
    Socket,
    Text(&'static str),
}

impl Operation {
    fn new(method: &'static str, path: &'static str, id: &'static str) -> Operation {
        Operation {
            method,
            path,
            id,
            summary: "",
            verb: None,
            body: None,
            query: None,
            answer: Answer::Text("text/plain"),
            acts: method != "get",
        }
    }

    pub fn get(path: &'static str, id: &'static str) -> Operation {
        Operation::new("get", path, id)
    }

    pub fn post(path: &'static str, id: &'static str) -> Operation {
        Operation::new("post", path, id)
    }

    pub fn put(path: &'static str, id: &'static str) -> Operation {
        Operation::new("put", path, id)
    }

    pub fn delete(path: &'static str, id: &'static str) -> Operation {
        Operation::new("delete", path, id)
    }

    pub fn verb(mut self, verb: Verb) -> Operation {
        self.verb = Some(verb);
        self
    }

    pub fn says(mut self, summary: &'static str) -> Operation {
        self.summary = summary;
        self
    }

    pub fn takes<T: JsonSchema>(mut self) -> Operation {
        self.body = Some(Taken::Json(T::json_schema));
        self
    }

    pub fn takes_bytes(mut self) -> Operation {
        self.body = Some(Taken::Bytes);
        self
    }

    pub fn asks<T: JsonSchema>(mut self) -> Operation {
        self.query = Some(T::json_schema);
        self
    }

    pub fn gives<T: JsonSchema>(mut self) -> Operation {
        self.answer = Answer::Json(200, SchemaGenerator::subschema_for::<T>);
        self
    }

    pub fn makes<T: JsonSchema>(mut self) -> Operation {
        self.answer = Answer::Json(201, SchemaGenerator::subschema_for::<T>);
        self
    }

    pub fn streams<T: JsonSchema>(mut self) -> Operation {
        self.answer = Answer::Stream(SchemaGenerator::subschema_for::<T>);
        self
    }

    pub fn answers(mut self, answer: Answer) -> Operation {
        self.answer = answer;
        self
    }

    fn filter(&self) -> MethodFilter {
        match self.method {
            "get" => MethodFilter::GET,
            "delete" => MethodFilter::DELETE,
            "put" => MethodFilter::PUT,
            _ => MethodFilter::POST,
        }
    }
}

/// Routes and their descriptions.
#[derive(Default)]
pub struct Api {
    pub router: Router<Shared>,
    pub operations: Vec<Operation>,
}

impl Api {
    /// Adds an operation and what carries it out.
    #[must_use]
    pub fn with<H, T>(mut self, operation: Operation, handler: H) -> Api
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        self.router = self.router.route(operation.path, on(operation.filter(), handler));
        self.operations.push(operation);
        self
    }
}

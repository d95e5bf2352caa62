//! What `--json` writes: one document for a command line, whatever becomes of it. docs/ib_acme-json.md explains it.

use std::path::Path;

use crate::fault::Fault;
use crate::json::Json;

/// The whole document.
#[derive(Default)]
pub struct Document {
    /// Why nothing could be done.
    pub error: Option<Fault>,
    /// For each service that was to be asked, in order.
    pub services: Vec<Answers>,
    files: Vec<Json>,
}

/// What one service was asked, and what came.
pub struct Answers {
    service: String,
    errors: Vec<Json>,
    lists: Vec<(&'static str, Json)>,
}

impl Document {
    /// For a command line that is not understood.
    pub fn failed(error: Fault) -> Document {
        Document { error: Some(error), ..Document::default() }
    }

    /// Adds a file that was to be written; `kind` says what is in it.
    pub fn file(&mut self, kind: &str, path: &Path, error: Option<&Fault>) {
        self.files.push(Json::Object(vec![
            ("kind", kind.into()),
            ("path", Json::Text(path.display().to_string())),
            ("error", error.map(Fault::json).into()),
        ]));
    }

    /// All of it, with the exit status.
    pub fn json(self, status: u8) -> Json {
        Json::Object(vec![
            ("error", self.error.as_ref().map(Fault::json).into()),
            ("services", self.services.into_iter().map(Answers::json).collect()),
            ("files", Json::List(self.files)),
            ("status", status.into()),
        ])
    }
}

impl Answers {
    /// Of a service with this name, of which nothing is known yet.
    pub fn new(service: &str) -> Answers {
        Answers { service: service.to_owned(), errors: Vec::new(), lists: Vec::new() }
    }

    /// Adds what was asked for. An empty list is one: it says that the question was put.
    pub fn list(&mut self, name: &'static str, items: Vec<Json>) {
        self.lists.push((name, Json::List(items)));
    }

    /// Adds why there is less than was asked for; `about` is the name of the list, or `service` for all.
    pub fn failed(&mut self, about: &str, fault: &Fault) {
        self.errors.push(Json::Object(vec![("about", about.into()), ("error", fault.json())]));
    }

    fn json(self) -> Json {
        let mut members = vec![("service", Json::Text(self.service)), ("errors", Json::List(self.errors))];
        members.extend(self.lists);
        Json::Object(members)
    }
}

//! What the protocol's own conformance suite wants to find on a server: tools,
//! resources and prompts with fixed answers. Shown only with the test-only flag
//! `--mcp-fixtures`, beside the real ones; they touch nothing.

// Sampling and logging go away in later revisions; the suite asks for them.
#![expect(deprecated)]

use super::Answer;
use fractal::model::{Id, Key, Role as KeyRole, Scope};
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, CreateMessageRequestParams,
    ElicitRequestParams, GetPromptResult, JsonObject, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, Prompt, PromptArgument,
    PromptMessage, ReadResourceResult, Resource, ResourceContents, Role, SamplingMessage, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// One red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A sound without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
const PAUSE: Duration = Duration::from_millis(50);

/// The suite can send no key. Whoever asks a server that shows fixtures is
/// somebody who may look, and has nothing to look at.
pub fn asker() -> Key {
    let viewer = KeyRole::built_in("viewer").expect("viewer is built in");
    Key {
        id: Id::from_parts(0, [0; 10]),
        name: "conformance".to_owned(),
        role: viewer.name,
        policy: viewer.policy,
        tenant: Some("conformance".to_owned()),
        scope: Scope::All,
        rate_per_minute: None,
        concurrent: None,
        created_ms: 0,
        expires_ms: None,
        revoked_ms: None,
    }
}

/// Names, and the arguments that they need.
const TOOLS: [(&str, &[&str]); 13] = [
    ("test_simple_text", &[]),
    ("test_image_content", &[]),
    ("test_audio_content", &[]),
    ("test_embedded_resource", &[]),
    ("test_multiple_content_types", &[]),
    ("test_tool_with_logging", &[]),
    ("test_error_handling", &[]),
    ("test_tool_with_progress", &[]),
    ("test_sampling", &["prompt"]),
    ("test_elicitation", &["message"]),
    ("test_elicitation_sep1034_defaults", &[]),
    ("test_elicitation_sep1330_enums", &[]),
    ("test_reconnection", &[]),
];

pub fn tools() -> Vec<Tool> {
    let text = json!({ "type": "string" });
    let each = TOOLS.iter().map(|(name, needs)| {
        let fields: JsonObject =
            needs.iter().map(|need| (need.to_string(), text.clone())).collect();
        let schema = json!({ "type": "object", "properties": fields, "required": needs });
        Tool::new(*name, "A fixture of the conformance suite", object(schema))
    });
    each.chain([schema_tool()]).collect()
}

/// Keywords that must come through as they were written.
fn schema_tool() -> Tool {
    let address = json!({ "type": "object", "$anchor": "address", "properties": {
        "street": { "type": "string" }, "city": { "type": "string" } } });
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": address },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    });
    Tool::new("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", object(schema))
}

fn object(schema: Value) -> Arc<JsonObject> {
    let Value::Object(schema) = schema else { unreachable!("it was written as an object") };
    Arc::new(schema)
}

/// The answer of a fixture, if the name is one.
pub async fn call(
    name: &str,
    arguments: &JsonObject,
    context: &RequestContext<RoleServer>,
) -> Option<Answer<CallToolResponse>> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let content = match name {
        "test_simple_text" => says("This is a simple text response for testing."),
        "test_image_content" => Ok(vec![ContentBlock::image(PNG, "image/png")]),
        "test_audio_content" => Ok(vec![ContentBlock::audio(WAV, "audio/wav")]),
        "test_embedded_resource" => Ok(vec![embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )]),
        "test_multiple_content_types" => Ok(vec![
            ContentBlock::text("Multiple content types test:"),
            ContentBlock::image(PNG, "image/png"),
            embedded(
                "test://mixed-content-resource",
                "application/json",
                "{\"test\":\"data\",\"value\":123}",
            ),
        ]),
        "test_tool_with_logging" => logging(context).await,
        "test_tool_with_progress" => progress(context).await,
        "test_error_handling" => {
            let why = "This tool intentionally returns an error for testing";
            return Some(Ok(CallToolResult::error(vec![ContentBlock::text(why)]).into()));
        }
        "test_sampling" => sampling(context, text("prompt")).await,
        "test_elicitation" => elicit(context, text("message"), asked()).await,
        "test_elicitation_sep1034_defaults" => elicit(context, "Defaults", defaults()).await,
        "test_elicitation_sep1330_enums" => elicit(context, "Choices", choices()).await,
        "test_reconnection" | "json_schema_2020_12_tool" => says("Still here."),
        _ => return None,
    };
    Some(content.map(|content| CallToolResult::success(content).into()))
}

type Content = Answer<Vec<ContentBlock>>;

fn says(text: impl Into<String>) -> Content {
    Ok(vec![ContentBlock::text(text.into())])
}

fn embedded(uri: &str, kind: &str, text: &str) -> ContentBlock {
    ContentBlock::resource(ResourceContents::text(text, uri).with_mime_type(kind))
}

fn broken(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

async fn logging(context: &RequestContext<RoleServer>) -> Content {
    for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        let note = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(text));
        context.peer.notify_logging_message(note).await.map_err(broken)?;
        tokio::time::sleep(PAUSE).await;
    }
    says("Told three times.")
}

async fn progress(context: &RequestContext<RoleServer>) -> Content {
    for percent in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let mut note = ProgressNotificationParam::new(token, percent);
            note.total = Some(100.0);
            context.peer.notify_progress(note).await.map_err(broken)?;
        }
        tokio::time::sleep(PAUSE).await;
    }
    says("All of it.")
}

async fn sampling(context: &RequestContext<RoleServer>, prompt: &str) -> Content {
    let params = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(prompt)], 100);
    let answer = context.peer.create_message(params).await.map_err(broken)?;
    says(format!("LLM response: {}", json!(answer)))
}

async fn elicit(context: &RequestContext<RoleServer>, message: &str, schema: Value) -> Content {
    let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
    let params: ElicitRequestParams = serde_json::from_value(params).map_err(broken)?;
    let answer = context.peer.create_elicitation(params).await.map_err(broken)?;
    let answer = json!(answer);
    let action = answer["action"].as_str().unwrap_or_default();
    says(format!("Elicitation completed: action={action}, content={}", answer["content"]))
}

fn asked() -> Value {
    json!({ "type": "object", "required": ["username", "email"], "properties": {
        "username": { "type": "string", "description": "User's response" },
        "email": { "type": "string", "description": "User's email address" },
    }})
}

fn defaults() -> Value {
    json!({ "type": "object", "properties": {
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    }})
}

fn choices() -> Value {
    let titled = |kind: &str| {
        let one = |number: &str, word: &str| json!({ "const": format!("value{number}"), "title": format!("{word} {kind}") });
        json!([one("1", "First"), one("2", "Second"), one("3", "Third")])
    };
    let plain = json!(["option1", "option2", "option3"]);
    json!({ "type": "object", "properties": {
        "untitledSingle": { "type": "string", "enum": plain },
        "titledSingle": { "type": "string", "oneOf": titled("Option") },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
    }})
}

pub fn resources() -> Vec<Resource> {
    ["static-text", "static-binary", "watched-resource"]
        .map(|name| {
            Resource::new(format!("test://{name}"), name)
                .with_description("A fixture of the conformance suite")
        })
        .into()
}

/// The content of a fixture, if the address is one.
pub fn read(uri: &str) -> Option<ReadResourceResult> {
    let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
    let contents = match (uri, id) {
        ("test://static-text", _) => {
            ResourceContents::text("This is the content of the static text resource.", uri)
                .with_mime_type("text/plain")
        }
        ("test://static-binary", _) => ResourceContents::blob(PNG, uri).with_mime_type("image/png"),
        ("test://watched-resource", _) => {
            ResourceContents::text("Watched.", uri).with_mime_type("text/plain")
        }
        (_, Some(id)) => {
            let data =
                json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            ResourceContents::text(data.to_string(), uri).with_mime_type("application/json")
        }
        _ => return None,
    };
    Some(ReadResourceResult::new(vec![contents]))
}

pub fn prompts() -> Vec<Prompt> {
    let argument = |name: &str| PromptArgument::new(name).with_required(true);
    let about = Some("A fixture of the conformance suite");
    vec![
        Prompt::new("test_simple_prompt", about, None),
        Prompt::new(
            "test_prompt_with_arguments",
            about,
            Some(vec![argument("arg1"), argument("arg2")]),
        ),
        Prompt::new(
            "test_prompt_with_embedded_resource",
            about,
            Some(vec![argument("resourceUri")]),
        ),
        Prompt::new("test_prompt_with_image", about, None),
    ]
}

/// The messages of a fixture, if the name is one.
pub fn prompt(name: &str, arguments: &JsonObject) -> Option<GetPromptResult> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let user = |content: ContentBlock| PromptMessage::new(Role::User, content);
    let messages = match name {
        "test_simple_prompt" => {
            vec![user(ContentBlock::text("This is a simple prompt for testing."))]
        }
        "test_prompt_with_arguments" => {
            let (one, two) = (text("arg1"), text("arg2"));
            let line = format!("Prompt with arguments: arg1='{one}', arg2='{two}'");
            vec![user(ContentBlock::text(line))]
        }
        "test_prompt_with_embedded_resource" => vec![
            user(embedded(
                text("resourceUri"),
                "text/plain",
                "Embedded resource content for testing.",
            )),
            user(ContentBlock::text("Please process the embedded resource above.")),
        ],
        "test_prompt_with_image" => vec![
            user(ContentBlock::image(PNG, "image/png")),
            user(ContentBlock::text("Please analyze the image above.")),
        ],
        _ => return None,
    };
    Some(GetPromptResult::new(messages))
}

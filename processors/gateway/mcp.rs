//! The Model Context Protocol, over streamable HTTP and over stdio: the tools of `tools.rs`, each
//! memory as a resource, and a prompt that holds the block of a recall. A result is text for the
//! model, with the numbers as structured content.

use crate::calls::Calls;
use crate::keys::{Caller, Permission};
use crate::plain;
use crate::refusal::{self, Refusal};
use crate::tools::{By, TOOLS, Tool, idempotency_key, of};
use axum::http::StatusCode;
use domain::UserKey;
use domain::fault::{self, Fault};
use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const MEMORY: &str = "memory://";
/// The standing picture of the user.
const ABOUT: &str = "about://me";
/// Pause between two looks, during a call, whether the service is still the one that was asked. A
/// call takes milliseconds, so few are long enough for one look.
const SUCCESSOR_LOOK: Duration = Duration::from_millis(500);

/// The Kafka client of a server.
pub enum Client<C = Calls> {
    Connected(Arc<C>),
    /// Connected when a call needs it, by a function that may wait for a service.
    OnDemand(Connect<C>),
}

pub type Connect<C = Calls> = Arc<dyn Fn() -> fault::Result<Arc<C>> + Send + Sync>;

impl<C: Send + Sync + 'static> Client<C> {
    async fn calls(&self) -> refusal::Result<Arc<C>> {
        match self {
            Client::Connected(calls) => Ok(calls.clone()),
            Client::OnDemand(connect) => connected_by(connect.clone()).await,
        }
    }

    /// Calls the service, and calls its successor if one takes its place before it answers.
    async fn call<T, F>(&self, call: impl Fn(Arc<C>) -> F) -> refusal::Result<T>
    where
        F: Future<Output = refusal::Result<T>>,
    {
        let calls = self.calls().await?;
        tokio::select! {
            done = call(calls.clone()) => done,
            successor = self.successor(&calls) => call(successor).await,
        }
    }

    /// Returns once another service has taken the place of the one that these calls ask, such as after
    /// its death. Looking for it starts it. A look that fails proves nothing about the first service.
    async fn successor(&self, of: &Arc<C>) -> Arc<C> {
        let Client::OnDemand(connect) = self else { return std::future::pending().await };
        loop {
            tokio::time::sleep(SUCCESSOR_LOOK).await;
            match connected_by(connect.clone()).await {
                Ok(other) if !Arc::ptr_eq(&other, of) => return other,
                _ => {}
            }
        }
    }
}

/// Connects on another thread: pings and the list of tools are answered meanwhile.
async fn connected_by<C: Send + Sync + 'static>(connect: Connect<C>) -> refusal::Result<Arc<C>> {
    let unavailable = |why| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why);
    let connected = tokio::task::spawn_blocking(move || connect()).await;
    connected
        .map_err(|error| unavailable(error.to_string()))?
        .map_err(|fault| unavailable(fault.to_string()))
}

/// One user's memories, as an MCP server.
#[derive(Clone)]
pub struct Server {
    pub client: Arc<Client>,
    /// The caller and the user of a server on standard input. Over HTTP each request has its own.
    pub bound: Option<Bound>,
}

#[derive(Clone)]
pub struct Bound {
    pub caller: Caller,
    pub user: UserKey,
}

impl Server {
    fn bound(&self, context: &RequestContext<RoleServer>) -> Result<Bound, ErrorData> {
        let parts = context.extensions.get::<axum::http::request::Parts>();
        let bound = parts.and_then(|parts| parts.extensions.get::<Bound>()).or(self.bound.as_ref());
        bound.cloned().ok_or_else(|| {
            ErrorData::invalid_request("no user: call /mcp/{user}/, or send X-Keepsake-User", None)
        })
    }

    async fn ask(&self, user: &UserKey, request: Value) -> Result<Value, ErrorData> {
        let request = &request;
        let asked = self.client.call(|calls| async move { calls.ask(user, request.clone()).await });
        asked.await.map_err(failed)
    }
}

/// Serves the protocol on standard input and output until the input ends.
pub async fn stdio(server: Server) -> fault::Result<()> {
    let about = |e: String| Fault::retry(format!("serve MCP on standard input: {e}"));
    let transport = rmcp::transport::stdio();
    let running = server.serve(transport).await.map_err(|e| about(e.to_string()))?;
    running.waiting().await.map_err(|e| about(e.to_string()))?;
    Ok(())
}

fn failed(refusal: Refusal) -> ErrorData {
    let data = Some(refusal.body());
    match refusal.code.as_str() {
        "not_found" => ErrorData::resource_not_found(refusal.message, data),
        "invalid" => ErrorData::invalid_params(refusal.message, data),
        "forbidden" => ErrorData::invalid_request(refusal.message, data),
        _ => ErrorData::internal_error(refusal.message, data),
    }
}

/// The refusal of a call or tool; `invalid` for an error of the protocol.
pub fn refused(answer: &[u8]) -> Option<Refusal> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let body = match &answer["error"] {
        Value::Null if answer["result"]["isError"] == true => {
            &answer["result"]["structuredContent"]
        }
        Value::Null => return None,
        error => &error["data"],
    };
    let error = &body["error"];
    let status = StatusCode::from_u16(error["status"].as_u64().unwrap_or(400) as u16).ok()?;
    let text = |field: &str| error[field].as_str();
    let refusal = Refusal::new(
        status,
        text("code").unwrap_or("invalid"),
        text("message").unwrap_or_default(),
    );
    Some(Refusal { scope: text("scope").map(str::to_owned), ..refusal })
}

async fn called(
    server: &Server,
    bound: &Bound,
    tool: &Tool,
    arguments: &Value,
    key: Option<&str>,
) -> refusal::Result<Value> {
    bound.caller.may(tool.right)?;
    // The event has an id, so that a second attempt changes nothing twice.
    let id = (tool.right != Permission::Read)
        .then(|| key.map_or_else(|| Uuid::new_v4().to_string(), str::to_owned));
    let (caller, user, key) = (&bound.caller, &bound.user, id.as_deref());
    server
        .client
        .call(|calls: Arc<Calls>| async move {
            tool.call(&By { calls: &calls, caller, user, key }, arguments).await
        })
        .await
}

impl ServerHandler for Server {
    fn get_info(&self) -> InitializeResult {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts();
        let mut info = InitializeResult::new(capabilities.build());
        info.server_info = Implementation::new("keepsake", env!("CARGO_PKG_VERSION"));
        info.with_instructions(
            "Long-term memory of one user. Call search_memories before answering a question about \
             the user, and add_turns or add_memory when the user says something worth keeping.",
        )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = TOOLS.iter().map(described).collect();
        Ok(ListToolsResult { tools, ..ListToolsResult::default() })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let bound = self.bound(&context)?;
        let Some(tool) = Tool::named(&request.name) else {
            return Err(ErrorData::invalid_params(format!("no tool {}", request.name), None));
        };
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        // A refusal is a result that the model can read and act on, not an error of the protocol.
        let parts = context.extensions.get::<axum::http::request::Parts>();
        let key = parts.and_then(|parts| idempotency_key(&parts.headers));
        let (text, mut result) = match called(self, &bound, tool, &arguments, key).await {
            Ok(mut value) => (plain::take(&mut value), CallToolResult::structured(value)),
            Err(refusal) => {
                (refusal.message.clone(), CallToolResult::structured_error(refusal.body()))
            }
        };
        result.content = vec![ContentBlock::text(text)];
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let bound = self.bound(&context)?;
        bound.caller.may(Permission::Read).map_err(failed)?;
        let after = page.and_then(|page| page.cursor).map_or(Value::Null, Value::from);
        let list = of("list", &[("after", &after)]);
        let listed = self.ask(&bound.user, list).await?;
        let next_cursor = listed["after"].as_str().map(str::to_owned);
        let mut result = ListResourcesResult { next_cursor, ..Default::default() };
        if after.is_null() {
            let about = Resource::new(ABOUT, "What is known of the user");
            result.resources.push(about.with_mime_type("text/markdown"));
        }
        for memory in listed["memories"].as_array().into_iter().flatten() {
            let id = memory["id"].as_str().unwrap_or_default();
            let content = memory["content"].as_str().unwrap_or_default();
            let name: String = content.chars().take(60).collect();
            let resource = Resource::new(format!("{MEMORY}{id}"), name);
            result.resources.push(resource.with_mime_type("text/plain"));
        }
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut result = ListResourceTemplatesResult::default();
        let template = ResourceTemplate::new(format!("{MEMORY}{{id}}"), "memory");
        result.resource_templates.push(template.with_description("One memory by its id"));
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let bound = self.bound(&context)?;
        bound.caller.may(Permission::Read).map_err(failed)?;
        if request.uri == ABOUT {
            let reply = self.ask(&bound.user, of("about", &[])).await?;
            let text = reply["prompt"].as_str().unwrap_or_default();
            let contents = vec![ResourceContents::text(text, request.uri)];
            return Ok(ReadResourceResult::new(contents).into());
        }
        let Some(id) = request.uri.strip_prefix(MEMORY) else {
            let what = "resources are memory://{id} and about://me";
            return Err(ErrorData::resource_not_found(what, None));
        };
        let message = of("get", &[("memory", &json!(id))]);
        let reply = self.ask(&bound.user, message).await?;
        let text = reply["memory"]["content"].as_str().unwrap_or_default();
        let contents = vec![ResourceContents::text(text, request.uri.clone())];
        Ok(ReadResourceResult::new(contents).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let query = PromptArgument::new("query").with_description("What is asked");
        let what = "What is remembered about the user that bears on a question";
        let arguments = Some(vec![query.with_required(true)]);
        let prompts = vec![Prompt::new("memories", Some(what), arguments)];
        Ok(ListPromptsResult { prompts, ..ListPromptsResult::default() })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let bound = self.bound(&context)?;
        bound.caller.may(Permission::Read).map_err(failed)?;
        let query = request.arguments.as_ref().and_then(|given| given.get("query"));
        let (true, Some(query)) = (request.name == "memories", query) else {
            let what = "the prompt is memories, with the argument query";
            return Err(ErrorData::invalid_params(what, None));
        };
        let message = of("recall", &[("query", &json!(query)), ("purpose", &json!("prompt"))]);
        let reply = self.ask(&bound.user, message).await?;
        let block = reply["prompt"].as_str().unwrap_or_default();
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, block)]).into())
    }
}

fn described(tool: &Tool) -> rmcp::model::Tool {
    let annotations = ToolAnnotations::new()
        .read_only(tool.right == Permission::Read)
        .destructive(tool.destructive)
        .idempotent(tool.idempotent)
        .open_world(false);
    let output = json!({"type": "object"}).as_object().cloned().unwrap_or_default();
    rmcp::model::Tool::new(tool.name, tool.description, Arc::new(tool.schema()))
        .with_annotations(annotations)
        .with_raw_output_schema(Arc::new(output))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::Notify;

    /// Answers a call to service 1, with the number of the service. The first look for a successor fails,
    /// the second finds service `second`. Service 1 answers after that.
    fn answer(second: u32) -> u32 {
        let (first, other) = (Arc::new(1), Arc::new(second));
        let (looks, looked) = (AtomicU32::new(0), Arc::new(Notify::new()));
        let notify = looked.clone();
        let connect: Connect<u32> = Arc::new(move || match looks.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(first.clone()),
            1 => Err(Fault::retry("no service")),
            _ if second == 1 => {
                notify.notify_one();
                Ok(first.clone())
            }
            _ => Ok(other.clone()),
        });
        let call = |service: Arc<u32>| {
            let looked = looked.clone();
            async move {
                if *service == 1 {
                    looked.notified().await;
                }
                Ok(*service)
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let client = Client::OnDemand(connect);
        let answer = async { tokio::time::timeout(10 * SUCCESSOR_LOOK, client.call(call)).await };
        let answer = runtime.expect("a runtime").block_on(answer);
        answer.expect("it is in time").expect("an answer")
    }

    #[test]
    fn a_failed_look_for_a_successor_ends_no_call() {
        assert_eq!(answer(1), 1);
        assert_eq!(answer(2), 2);
    }
}

//! The calls of both dialects, as the OpenAPI document and the page of all calls show them.

use gateway::dialect::{Call, Heading};

pub const HEADINGS: &[Heading] = &[
    (
        "Paths of mem0's server",
        "The paths and fields of mem0's open-source server.",
        &["/memories", "/search"],
    ),
    (
        "Paths of mem0's hosted service",
        "The clients of the hosted service call these, with this gateway as their host.",
        &["/"],
    ),
];

/// The open-source server first.
pub const CALLS: &[Call] = &[
    (
        "post",
        "/memories",
        "Add messages, or store them as they are with infer: false",
        &["messages*", "user_id", "agent_id", "run_id", "metadata", "infer"],
    ),
    (
        "get",
        "/memories",
        "List a user's memories",
        &["user_id", "agent_id", "app_id", "run_id", "top_k"],
    ),
    ("delete", "/memories", "Erase a user's memories", &["user_id", "run_id"]),
    (
        "post",
        "/search",
        "Find the memories that answer a question; filters as in /v3/memories/",
        &["query*", "user_id", "agent_id", "run_id", "filters", "top_k", "threshold"],
    ),
    ("get", "/memories/{id}", "Read one memory", &["user_id"]),
    ("put", "/memories/{id}", "Change one memory", &["text", "metadata"]),
    ("delete", "/memories/{id}", "Erase one memory", &["user_id"]),
    ("get", "/memories/{id}/history", "Read the changes of one memory", &["user_id"]),
    ("get", "/v1/ping/", "Check the key; organization and project are the tenant", &[]),
    (
        "post",
        "/v3/memories/add/",
        "Add messages, or store them as they are with infer: false, as only then with expiration_date",
        &[
            "messages*",
            "user_id",
            "agent_id",
            "app_id",
            "run_id",
            "metadata",
            "infer",
            "filters",
            "timestamp",
            "expiration_date",
        ],
    ),
    (
        "post",
        "/v3/memories/",
        "List a user's memories. filters have AND, OR, NOT, all operators and created_at; user_id stands \
         at the top or inside AND. The private memories of a session are listed where run_id names one \
         session there. page and page_size are in the query",
        &["filters*", "start_date", "end_date"],
    ),
    (
        "post",
        "/v3/memories/search/",
        "Find the memories that answer a question; filters as in the list. rerank and keyword_search \
         change nothing: each search ranks by meaning and by words, and by the cross-encoder if the \
         operator has one. latest_only false also finds replaced and archived memories",
        &["query*", "filters*", "metadata", "top_k", "threshold", "fields", "latest_only"],
    ),
    (
        "delete",
        "/v1/memories",
        "Erase what the given names have in common",
        &["user_id", "agent_id", "app_id", "run_id"],
    ),
    ("get", "/v1/memories/{id}/", "Read one memory", &["user_id"]),
    ("put", "/v1/memories/{id}/", "Change one memory", &["text", "metadata"]),
    (
        "delete",
        "/v1/memories/{id}/",
        "Erase one memory, with delete_linked also those that it replaced",
        &["user_id", "delete_linked"],
    ),
    ("get", "/v1/memories/{id}/history/", "Read the changes of one memory", &["user_id"]),
    ("put", "/v1/batch/", "Change up to 1,000 memories, one after another", &["memories*"]),
    ("delete", "/v1/batch/", "Erase the memories of the body, one after another", &[]),
    (
        "post",
        "/v1/feedback/",
        "POSITIVE confirms a memory, NEGATIVE is irrelevant, VERY_NEGATIVE wrong",
        &["memory_id*", "feedback*", "feedback_reason"],
    ),
    (
        "get",
        "/v1/entities/",
        "List the users, agents, apps and runs that have active memories. Reads the whole memories \
         topic, which takes seconds at a million memories; too_large if the tenant has more than \
         100,000",
        &["page", "page_size"],
    ),
    (
        "delete",
        "/v2/entities/{kind}/{name}/",
        "Erase a user, or all memories of an agent, an app or a run; also at /v1/entities/. An agent, an \
         app or a run of all users needs the right admin, also where DELETE /v1/memories/ names no user",
        &[],
    ),
    ("post", "/v1/exports/", "501 no_language_model, as /v1/summary/ and /v2/profiles/", &[]),
    ("get", "/api/v1/orgs/{rest}", "501 no_platform: a key has a tenant", &[]),
    ("get", "/api/v1/webhooks/{rest}", "501 no_webhooks: read the memories topic", &[]),
];

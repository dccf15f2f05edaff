//! The paths of the clients of mem0's hosted service. `tests/mem0/` drives the clients themselves.

use super::{Gateway, name_of};
use crate::support::program::{command, parsed, run};
use crate::support::{Broker, Running, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    the_paths_of_the_hosted_clients_write_read_change_and_erase
    users_agents_apps_and_runs_are_listed_and_erased
}

const LIST: &str = "/v3/memories/";

impl Gateway {
    /// Stores a text as it is and returns the id.
    fn stored(&self, text: &str, fields: Value) -> String {
        let mut body = fields;
        body["messages"] = json!([{"role": "user", "content": text}]);
        body["infer"] = json!(false);
        let (status, answer) = self.call("POST", "/v3/memories/add/", body);
        assert_eq!((status, &answer["results"][0]["event"]), (200, &json!("ADD")), "{answer}");
        answer["results"][0]["id"].as_str().expect("an id").to_owned()
    }

    fn count(&self, filters: Value) -> Value {
        let (status, answer) = self.call("POST", LIST, json!({"filters": filters}));
        assert_eq!(status, 200, "{answer}");
        answer["count"].clone()
    }
}

fn the_paths_of_the_hosted_clients_write_read_change_and_erase(broker: Broker) {
    let running = Running::start(broker, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let (_, pong) = gateway.call("GET", "/v1/ping/", Value::Null);
    assert_eq!((&pong["status"], &pong["org_id"]), (&json!("ok"), &json!("default")), "{pong}");

    let bees = gateway.stored(
        "Ada keeps bees in Lisbon",
        json!({"user_id": "ada", "agent_id": "coach", "app_id": "diary", "run_id": "s1",
            "metadata": {"team": "blue"}, "timestamp": 1_700_000_000}),
    );
    let boat = gateway.stored(
        "Ada has a boat",
        json!({"filters": {"user_id": "ada"},
        "expiration_date": "2099-12-31"}),
    );
    let path = format!("/v1/memories/{boat}/");
    let (_, row) = gateway.call("GET", &path, Value::Null);
    assert_eq!(row["expiration_date"], "2099-12-31T23:59:59.999Z", "{row}");
    assert_eq!((&row["memory"], &row["categories"]), (&json!("Ada has a boat"), &json!([])));

    assert_eq!(gateway.count(json!({"AND": [{"user_id": "ada"}, {"agent_id": "coach"}]})), 1);
    assert_eq!(gateway.count(json!({"user_id": "ada", "metadata": {"team": "red"}})), 0);
    for (range, count) in [
        (json!({"lte": "2023-11-14"}), 1),
        (json!({"lt": "2023-11-14"}), 0),
        (json!({"gt": "2023-11-14"}), 1),
        (json!({"gte": "2023-11-14T22:13:20Z"}), 2),
    ] {
        assert_eq!(gateway.count(json!({"user_id": "ada", "created_at": range})), count, "{range}");
    }
    the_operators_of_filters_choose_memories(&gateway, &bees);
    let paged = format!("{LIST}?page=2&page_size=1");
    let (_, page) = gateway.call("POST", &paged, json!({"filters": {"user_id": "ada"}}));
    assert_eq!((&page["count"], &page["next"]), (&json!(2), &Value::Null), "{page}");
    assert_eq!(page["previous"], "/v3/memories/?page=1&page_size=1", "{page}");
    assert_eq!(page["results"][0]["id"], *bees, "the older is on the second page: {page}");

    let found = json!({"query": "bees in Lisbon", "filters": {"user_id": "ada", "run_id": "s1"},
        "fields": ["memory"]});
    let (_, answer) = gateway.call("POST", "/v3/memories/search/", found);
    let only = json!([{"id": bees, "memory": "Ada keeps bees in Lisbon"}]);
    assert_eq!(answer["results"], only, "{answer}");

    let (status, row) = gateway.call("PUT", &path, json!({"text": "Ada has a canoe"}));
    assert_eq!((status, &row["memory"]), (200, &json!("Ada has a canoe")), "{row}");
    let (_, rows) = gateway.call("GET", &format!("{path}history/"), Value::Null);
    assert_eq!(
        (&rows[1]["old_memory"], &rows[1]["user_id"]),
        (&json!("Ada has a boat"), &json!("ada"))
    );
    let texts = json!({"memories": [{"memory_id": bees, "text": "Ada sold her bees"},
        {"memory_id": boat, "metadata": {"team": "red"}}]});
    assert_eq!(gateway.call("PUT", "/v1/batch/", texts).0, 200);
    assert_eq!(gateway.count(json!({"user_id": "ada", "metadata": {"team": "red"}})), 1);

    let judged = json!({"memory_id": bees, "feedback": "VERY_NEGATIVE", "feedback_reason": "no"});
    assert_eq!(gateway.call("POST", "/v1/feedback/", judged).0, 200);
    let one = json!({"user": "ada", "memory": bees});
    let (_, one) = gateway.call("POST", "/v1/keepsake/get", one);
    assert!(one["memory"]["confidence"].as_f64().is_some_and(|it| it < 1.0), "{one}");

    let half = json!({"memories": [{"memory_id": boat},
        {"memory_id": "00000000-0000-5000-8000-000000000000"}]});
    let (status, answer) = gateway.call("DELETE", "/v1/batch/", half);
    assert_eq!(status, 404, "{answer}");
    assert!(answer["detail"].as_str().is_some_and(|it| it.contains("the 1 before are done")));
    assert_eq!(name_of(&gateway.call("GET", &path, Value::Null)), (404, "not_found"));
    assert_eq!(gateway.call("DELETE", &format!("/v1/memories/{bees}/"), Value::Null).0, 200);
    assert_eq!(gateway.count(json!({"user_id": "ada"})), 0);

    let kept = gateway.stored("Ada likes tea", json!({"user_id": "ada", "agent_id": "coach"}));
    gateway.stored("Ada likes rye", json!({"user_id": "ada", "agent_id": "other"}));
    let other = "/v1/memories/?user_id=ada&agent_id=other";
    assert_eq!(gateway.call("DELETE", other, Value::Null).0, 200);
    let (_, page) = gateway.call("POST", LIST, json!({"filters": {"user_id": "ada"}}));
    assert_eq!((&page["count"], &page["results"][0]["id"]), (&json!(1), &json!(kept)), "{page}");
    assert_eq!(gateway.call("DELETE", "/v1/memories/?user_id=ada", Value::Null).0, 200);
    assert_eq!(gateway.count(json!({"user_id": "ada"})), 0);

    for (linked, status) in [("", 200), ("?delete_linked=true", 404)] {
        let mut homes = Vec::new();
        for text in ["I live in Lisbon.", "I live in Oslo."] {
            let turn = json!({"messages": text, "user_id": format!("eve{status}")});
            let (_, answer) = gateway.call("POST", "/v3/memories/add/", turn);
            let id = answer["results"][0]["id"].as_str().unwrap_or_else(|| panic!("{answer}"));
            homes.push(format!("/v1/memories/{id}/"));
        }
        assert_eq!(gateway.call("DELETE", &format!("{}{linked}", homes[1]), Value::Null).0, 200);
        let (found, older) = gateway.call("GET", &homes[0], Value::Null);
        assert_eq!(found, status, "the replaced memory after {linked:?}: {older}");
    }
}

/// Ada has two memories: `bees`, of the blue team, from 2023, and one without metadata from today.
fn the_operators_of_filters_choose_memories(gateway: &Gateway, bees: &str) {
    let ids = |path: &str, body: Value| {
        let (status, answer) = gateway.call("POST", path, body);
        assert_eq!(status, 200, "{answer}");
        let rows = answer["results"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row["id"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    for (filter, holds) in [
        (json!({"team": "blue"}), true),
        (json!({"team": "red"}), false),
        (json!({"OR": [{"team": "red"}, {"team": "blue"}]}), true),
        (json!({"OR": [{"team": "red"}, {"run_id": "s2"}]}), false),
        (json!({"NOT": [{"team": "red"}, {"agent_id": "nurse"}], "team": "*"}), true),
        (json!({"NOT": [{"team": "blue"}, {"team": "red"}], "app_id": "diary"}), false),
        (json!({"AND": [{"team": {"ne": "red"}}, {"team": {"ne": "green"}}], "team": "*"}), true),
        (json!({"AND": [{"team": {"ne": "red"}}, {"team": {"ne": "blue"}}], "team": "*"}), false),
        (json!({"team": {"in": ["red", "blue"]}}), true),
        (json!({"team": {"in": ["red"]}}), false),
        (json!({"team": {"nin": ["red"]}, "agent_id": "*"}), true),
        (json!({"team": {"nin": ["blue"]}, "agent_id": "*"}), false),
        (json!({"team": {"gt": "a", "lt": "c"}}), true),
        (json!({"team": {"gte": "c"}}), false),
        (json!({"team": {"contains": "lu"}}), true),
        (json!({"team": {"contains": "LU"}}), false),
        (json!({"team": {"icontains": "LU"}}), true),
        (json!({"team": {"icontains": "x"}}), false),
        (json!({"agent_id": "*"}), true),
        (json!({"flavour": "*"}), false),
        (json!({"run_id": {"in": ["s1", "s2"]}}), true),
        (json!({"run_id": {"in": ["s2"]}}), false),
        (json!({"created_at": {"lt": "2024-01-01"}}), true),
        (json!({"created_at": {"gte": "2023-11-16", "lt": "2024-01-01"}}), false),
    ] {
        let filters = json!({"AND": [{"user_id": "ada"}, filter]});
        let expected: Vec<String> = holds.then(|| bees.to_owned()).into_iter().collect();
        assert_eq!(ids(LIST, json!({"filters": filters})), expected, "{filters}");
        let found = json!({"query": "bees in Lisbon", "filters": filters, "top_k": 1});
        assert_eq!(ids("/v3/memories/search/", found.clone()), expected, "{filters}");
        assert_eq!(ids("/search", found), expected, "{filters}");
    }
    let (_, listed) =
        gateway.call("GET", "/memories?user_id=ada&app_id=diary&top_k=1", Value::Null);
    assert_eq!(listed["results"][0]["id"], *bees, "the older one, although one is asked for");
}

fn users_agents_apps_and_runs_are_listed_and_erased(broker: Broker) {
    let running = Running::start(broker, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    gateway.stored("Bob rows", json!({"user_id": "bob", "agent_id": "coach", "run_id": "r1"}));
    gateway.stored("Bob sails", json!({"user_id": "bob", "app_id": "diary"}));
    gateway.stored("Cleo dives", json!({"user_id": "cleo", "agent_id": "coach"}));
    let entities = |gateway: &Gateway| {
        let (status, answer) = gateway.call("GET", "/v1/entities/?page_size=1000", Value::Null);
        assert_eq!(status, 200, "{answer}");
        let rows = answer["results"].as_array().expect("a list").iter();
        rows.map(|it| {
            format!("{} {} {}", it["type"], it["name"], it["total_memories"]).replace('"', "")
        })
        .collect::<Vec<_>>()
    };
    let all = ["agent coach 2", "app diary 1", "run r1 1", "user bob 2", "user cleo 1"];
    assert_eq!(entities(&gateway), all);
    assert_eq!(
        entities(&Gateway::start(&running.place, &[])),
        all,
        "another gateway knows them too"
    );

    assert_eq!(gateway.call("DELETE", "/v2/entities/agent/coach/", Value::Null).0, 200);
    assert_eq!(entities(&gateway), ["app diary 1", "user bob 1"]);
    gateway.stored("Cleo rests", json!({"user_id": "cleo", "agent_id": "nurse"}));
    assert_eq!(gateway.call("DELETE", "/v1/memories/?agent_id=nurse", Value::Null).0, 200);
    assert_eq!(entities(&gateway), ["app diary 1", "user bob 1"]);
    gateway.stored("Bob rests", json!({"user_id": "bob", "run_id": "r2"}));
    assert_eq!(gateway.call("DELETE", "/v2/entities/run/r2/", Value::Null).0, 200);
    assert_eq!(entities(&gateway), ["app diary 1", "user bob 1"]);
    let none = gateway.call("DELETE", "/v2/entities/run/r2/", Value::Null);
    assert_eq!(name_of(&none), (404, "not_found"));
    assert_eq!(gateway.call("DELETE", "/v1/entities/user/bob/", Value::Null).0, 200);
    assert_eq!(entities(&gateway), Vec::<String>::new());
}

#[test]
fn hosted_calls_that_have_no_part_here_are_refused_by_name() {
    let running = Running::start(Broker::Embedded, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let id = gateway.stored("Ada has a boat", json!({"user_id": "ada"}));
    let memory = format!("/v1/memories/{id}/");
    let ada = json!({"user_id": "ada"});
    let search = |filters: Value| json!({"query": "boat", "filters": filters});
    let found = "/v3/memories/search/";
    for (method, path, body, status, code) in [
        ("POST", "/v1/exports/", json!({"schema": {}}), 501, "no_language_model"),
        ("POST", "/v1/exports/get/", json!({}), 501, "no_language_model"),
        ("POST", "/v1/summary/", json!({}), 501, "no_language_model"),
        ("GET", "/v2/entities/user/ada/profile/", Value::Null, 501, "no_language_model"),
        ("POST", "/v2/profiles/jobs/", json!({}), 501, "no_language_model"),
        ("GET", "/api/v1/orgs/organizations/o/projects/p/", Value::Null, 501, "no_platform"),
        ("GET", "/api/v1/webhooks/projects/p/", Value::Null, 501, "no_webhooks"),
        (
            "PUT",
            memory.as_str(),
            json!({"text": "x", "expiration_date": null}),
            501,
            "not_supported",
        ),
        ("POST", "/v1/feedback/", json!({"memory_id": id}), 501, "not_supported"),
        ("DELETE", "/v1/memories/?user_id=*", Value::Null, 501, "not_supported"),
        ("DELETE", "/v1/memories/?user_id=ada&filters=x", Value::Null, 400, "invalid"),
        ("DELETE", "/v1/memories/", Value::Null, 400, "invalid"),
        ("DELETE", "/v1/memories/?agent_id=a&app_id=b", Value::Null, 400, "invalid"),
        ("DELETE", "/v2/entities/team/ada/", Value::Null, 400, "invalid"),
        ("POST", LIST, json!({"filters": ada, "categories": ["food"]}), 501, "not_supported"),
        ("POST", LIST, json!({"filters": ada, "latest_only": true}), 501, "not_supported"),
        ("POST", LIST, json!({"filters": {}}), 400, "invalid"),
        ("POST", LIST, json!({"filters": {"NOT": [ada]}}), 501, "not_supported"),
        ("POST", "/v3/memories/?page_size=10001", json!({"filters": ada}), 413, "too_large"),
        ("POST", found, search(json!({"OR": [ada]})), 501, "not_supported"),
        ("POST", "/search", search(json!({"OR": [ada]})), 501, "not_supported"),
        ("POST", found, search(json!({"user_id": "*"})), 501, "not_supported"),
        ("POST", found, search(json!({"user_id": "ada", "agent_id": null})), 400, "invalid"),
        ("POST", found, search(json!({"user_id": "ada", "n": {"near": 1}})), 400, "invalid"),
        ("POST", found, search(json!({"AND": [ada, {"categories": "x"}]})), 501, "not_supported"),
        ("DELETE", "/memories?user_id=ada&app_id=a", Value::Null, 400, "invalid"),
    ] {
        let answer = gateway.call(method, path, body);
        assert_eq!(name_of(&answer), (status, code), "{method} {path}: {}", answer.1);
        assert_eq!(answer.1["detail"], answer.1["error"]["message"], "{path}");
    }
    let add = |fields: Value| {
        let mut body = json!({"messages": "Ada has a boat", "user_id": "ada"});
        body.as_object_mut().expect("one").extend(fields.as_object().expect("one").clone());
        gateway.call("POST", "/v3/memories/add/", body)
    };
    assert_eq!(name_of(&add(json!({"custom_instructions": "x"}))), (501, "not_supported"));
    assert_eq!(name_of(&add(json!({"expiration_date": "2099-01-01"}))), (400, "invalid"));
    assert_eq!(name_of(&add(json!({"timestamp": "soon"}))), (400, "invalid"));
    assert_eq!(gateway.count(ada), 1, "nothing was erased or added");
}

#[test]
fn a_key_of_the_hosted_paths_keeps_to_its_tenant_user_and_rights() {
    let running = Running::start(Broker::Embedded, &[]);
    let file = running.place.dir.join("gateway.keys").display().to_string();
    let made = |arguments: &[&str]| {
        let mut command = command(&running.place);
        command.arg("--set").arg(format!("gateway.keys={file}")).args(["--json", "keys", "new"]);
        let made = parsed(&run(command.args(arguments)));
        format!("Token {}", made["key"].as_str().expect("a key"))
    };
    let all = made(&["--tenant", "acme", "--rights", "read,write,forget"]);
    let other = made(&["--tenant", "other", "--rights", "read,write,forget"]);
    let ada = made(&["--tenant", "acme", "--user", "ada", "--rights", "read,forget"]);
    let reader = made(&["--tenant", "acme", "--rights", "read"]);
    let admin = made(&["--tenant", "acme", "--rights", "read,write,forget,admin"]);
    let gateway = Gateway::start(&running.place, &[("gateway.keys", &file)]);
    let call = |key: &str, method: &str, path: &str, body: Value| {
        gateway.call_with(method, path, &[("authorization", key)], body)
    };
    assert_eq!(name_of(&gateway.call("GET", "/v1/ping/", Value::Null)), (401, "unauthorized"));
    assert_eq!(call(&all, "GET", "/v1/ping/", Value::Null).1["org_id"], "acme");
    let add = |user: &str| json!({"messages": "a boat", "user_id": user, "agent_id": "coach", "infer": false});
    let mut ids = Vec::new();
    for user in ["ada", "bob"] {
        let (status, answer) = call(&all, "POST", "/v3/memories/add/", add(user));
        assert_eq!(status, 200, "{answer}");
        ids.push(answer["results"][0]["id"].as_str().expect("an id").to_owned());
    }
    let bobs = format!("/v1/memories/{}/", ids[1]);
    let names = |key: &str| {
        let (_, answer) = call(key, "GET", "/v1/entities/", Value::Null);
        let rows = answer["results"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|it| it["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&all), ["coach", "ada", "bob"]);
    assert_eq!(names(&ada), ["coach", "ada"]);
    assert_eq!(names(&other), Vec::<String>::new());
    assert_eq!(name_of(&call(&other, "GET", &bobs, Value::Null)), (404, "not_found"));
    assert_eq!(name_of(&call(&ada, "GET", &bobs, Value::Null)), (404, "not_found"));
    let judged = json!({"memory_id": ids[0], "feedback": "POSITIVE"});
    for (key, method, path, body) in [
        (&reader, "POST", "/v3/memories/add/", add("ada")),
        (&reader, "PUT", bobs.as_str(), json!({"text": "x"})),
        (&reader, "DELETE", bobs.as_str(), Value::Null),
        (&reader, "DELETE", "/v1/memories/?user_id=bob", Value::Null),
        (&reader, "DELETE", "/v2/entities/user/bob/", Value::Null),
        (&reader, "DELETE", "/v1/batch/", json!({"memories": [{"memory_id": ids[1]}]})),
        (&reader, "POST", "/v1/feedback/", judged),
        (&ada, "DELETE", "/v2/entities/user/bob/", Value::Null),
        (&ada, "DELETE", "/v1/memories/?user_id=bob", Value::Null),
        (&all, "DELETE", "/v2/entities/agent/coach/", Value::Null),
        (&all, "DELETE", "/v1/memories/?agent_id=coach", Value::Null),
    ] {
        assert_eq!(name_of(&call(key, method, path, body)), (403, "forbidden"), "{method} {path}");
    }
    // The agent of two users: the key for one erases that user's part.
    assert_eq!(call(&ada, "DELETE", "/v2/entities/agent/coach/", Value::Null).0, 200);
    assert_eq!(names(&all), ["coach", "bob"]);
    assert_eq!(call(&admin, "DELETE", "/v2/entities/agent/coach/", Value::Null).0, 200);
    assert_eq!(names(&all), Vec::<String>::new());
}

#[test]
fn a_key_for_one_user_changes_no_memory_of_the_whole_tenant() {
    let running = Running::start(Broker::Embedded, &[]);
    let file = running.place.dir.join("gateway.keys").display().to_string();
    let made = |arguments: &[&str]| {
        let mut command = command(&running.place);
        command.arg("--set").arg(format!("gateway.keys={file}")).args(["--json", "keys", "new"]);
        let rights = ["--tenant", "acme", "--rights", "read,write,forget"];
        let made = parsed(&run(command.args(rights).args(arguments)));
        format!("Token {}", made["key"].as_str().expect("a key"))
    };
    let (all, ada) = (made(&[]), made(&["--user", "ada"]));
    let gateway = Gateway::start(&running.place, &[("gateway.keys", &file)]);
    let call = |key: &str, method: &str, path: &str, body: Value| {
        gateway.call_with(method, path, &[("authorization", key)], body)
    };
    let notice = json!({"user": "bob", "scope": "tenant", "content": "The office closes at six",
        "metadata": {"agent_id": "porter"}});
    let (_, told) = call(&all, "POST", "/v1/keepsake/remember", notice);
    let id = told["decisions"][0]["memory"].as_str().unwrap_or_else(|| panic!("{told}"));
    let path = format!("/v1/memories/{id}/");
    crate::support::eventually("the notice for Ada", || {
        (call(&ada, "GET", &path, Value::Null).0 == 200).then_some(())
    });
    let own = format!("/memories/{id}");
    let text = json!({"text": "The office closes at noon"});
    let entry = json!({"memories": [{"memory_id": id, "text": "x"}]});
    let about = |fields: Value| {
        let mut message = json!({"memory": id});
        message.as_object_mut().expect("one").extend(fields.as_object().expect("one").clone());
        message
    };
    for (method, path, body) in [
        ("PUT", path.as_str(), text.clone()),
        ("PUT", own.as_str(), text.clone()),
        ("DELETE", path.as_str(), Value::Null),
        ("DELETE", own.as_str(), Value::Null),
        ("PUT", "/v1/batch/", entry.clone()),
        ("DELETE", "/v1/batch/", entry),
        ("POST", "/v1/feedback/", json!({"memory_id": id, "feedback": "VERY_NEGATIVE"})),
        ("POST", "/v1/keepsake/update", about(json!({"content": "x"}))),
        ("POST", "/v1/keepsake/forget", about(json!({}))),
        ("POST", "/v1/keepsake/feedback", about(json!({"signal": "wrong"}))),
        ("POST", "/v1/keepsake/feedback", json!({"memories": [id], "signal": "wrong"})),
    ] {
        let answer = call(&ada, method, path, body);
        assert_eq!(name_of(&answer), (403, "forbidden"), "{method} {path}: {}", answer.1);
    }
    for path in ["/v1/memories/?agent_id=porter", "/v1/memories/"] {
        assert_eq!(call(&ada, "DELETE", path, Value::Null).0, 200, "{path}");
    }
    let (_, kept) = call(&ada, "GET", &path, Value::Null);
    assert_eq!(kept["memory"], "The office closes at six", "{kept}");
    let (status, changed) = call(&all, "PUT", &format!("{path}?user_id=bob"), text);
    assert_eq!((status, &changed["memory"]), (200, &json!("The office closes at noon")));
}

#[test]
fn an_unknown_field_of_a_body_is_named() {
    let running = Running::start(Broker::Embedded, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let id = gateway.stored("Ada keeps bees", json!({"user_id": "ada"}));
    let user = json!({"user_id": "ada"});
    let added = json!({"messages": "I row.", "user_id": "ada"});
    let found = json!({"query": "bees", "filters": user, "limit": 1, "top_k": 1});
    let judged = json!({"memory_id": id, "feedback": "POSITIVE"});
    for (method, path, body) in [
        ("POST", "/memories", added.clone()),
        ("POST", "/search", json!({"query": "bees", "filters": user, "limit": 1})),
        ("PUT", &*format!("/memories/{id}?user_id=ada"), json!({"text": "Ada keeps goats"})),
        ("POST", "/v3/memories/add/", added),
        ("POST", "/v3/memories/search/", json!({"query": "bees", "filters": user})),
        ("POST", "/v3/memories/", json!({"filters": user})),
        ("PUT", &*format!("/v1/memories/{id}/"), json!({"text": "Ada keeps ducks"})),
        ("PUT", "/v1/batch/", json!({"memories": []})),
        ("DELETE", "/v1/batch/", json!({"memories": []})),
        ("POST", "/v1/feedback/", judged),
    ] {
        let (status, answer) = gateway.call(method, path, body.clone());
        assert_eq!((status, &answer["warnings"]), (200, &Value::Null), "{method} {path}: {answer}");
        let mut misspelt = body;
        misspelt["tresh"] = 0.5.into();
        let (status, answer) = gateway.call(method, path, misspelt);
        let named = json!(["tresh: unknown field, ignored"]);
        assert_eq!((status, &answer["warnings"]), (200, &named), "{method} {path}: {answer}");
    }
    // The parser itself refuses a field that is given twice under two names.
    assert_eq!(gateway.call("POST", "/search", found).0, 422);
}

#[test]
fn a_tool_call_that_comes_twice_with_one_key_is_applied_once() {
    let running = Running::start(Broker::Embedded, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let call = |key: &str, tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let headers = [("mcp-protocol-version", "2025-06-18"), ("idempotency-key", key)];
        let (_, answer) = gateway.call_with("POST", "/mcp/ada/", &headers, message);
        let result = &answer["result"];
        assert!(result["isError"] != true && result.is_object(), "{tool}: {answer}");
        result["structuredContent"].clone()
    };
    let count = || gateway.count(json!({"user_id": "ada"}));
    let first = call("add", "add_memory", json!({"text": "I row."}))["id"].clone();
    assert_eq!(call("add", "add_memory", json!({"text": "I row."}))["id"], first);
    assert_eq!(count(), 1);
    for (key, text) in [("one", "I sail."), ("two", "I swim."), ("one", "I sail.")] {
        call(key, "update_memory", json!({"id": first, "text": text}));
    }
    assert_eq!(call("get", "get_memory", json!({"id": first}))["memory"]["content"], "I swim.");
    for _ in 0..2 {
        call("erase", "delete_memory", json!({"id": first}));
    }
    assert_eq!(count(), 0);
    call("all", "delete_all_memories", json!({}));
    call("later", "add_memory", json!({"text": "I fly."}));
    call("all", "delete_all_memories", json!({}));
    assert_eq!(count(), 1, "the repeated call erases nothing that came later");
}

#[test]
fn a_call_that_comes_twice_with_one_key_is_applied_once() {
    let running = Running::start(Broker::Embedded, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let call = |key: &str, method: &str, path: &str, body: Value| {
        let (status, answer) = gateway.call_with(method, path, &[("idempotency-key", key)], body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    };
    let read = |id: &str| gateway.call("GET", &format!("/v1/memories/{id}/"), Value::Null);
    for (n, add) in ["/memories", "/memories/", "/v3/memories/add/"].into_iter().enumerate() {
        let user = format!("eve{n}");
        let messages = ["I row.", "I sail."].map(|text| json!({"role": "user", "content": text}));
        let body = json!({"messages": messages, "user_id": user, "infer": false});
        let first = call("a", "POST", add, body.clone());
        assert_eq!(call("a", "POST", add, body)["results"][1]["id"], first["results"][1]["id"]);
        assert_eq!(gateway.count(json!({"user_id": user})), 2, "{add}");
    }
    let boat = gateway.stored("Ada has a boat", json!({"user_id": "ada"}));
    let bees = gateway.stored("Ada keeps bees", json!({"user_id": "ada"}));
    let (hosted, own) = (format!("/v1/memories/{boat}/"), format!("/memories/{boat}"));
    for (n, path) in [&hosted, &own].into_iter().enumerate() {
        let (canoe, raft) = (json!({"text": "Ada has a canoe"}), json!({"text": "Ada has a raft"}));
        call(&format!("put{n}"), "PUT", path, canoe.clone());
        call(&format!("put-between{n}"), "PUT", path, raft);
        call(&format!("put{n}"), "PUT", path, canoe);
        assert_eq!(read(&boat).1["memory"], "Ada has a raft", "{path}");
    }
    let batch = |text: &str| {
        json!({"memories": [{"memory_id": boat, "text": text},
            {"memory_id": bees, "text": format!("{text} too")}]})
    };
    call("batch", "PUT", "/v1/batch/", batch("Sold"));
    call("batch-between", "PUT", "/v1/batch/", batch("Kept"));
    call("batch", "PUT", "/v1/batch/", batch("Sold"));
    assert_eq!(
        (&read(&boat).1["memory"], &read(&bees).1["memory"]),
        (&json!("Kept"), &json!("Kept too"))
    );
    let confidence = || {
        let one = json!({"user": "ada", "memory": bees});
        gateway.call("POST", "/v1/keepsake/get", one).1["memory"]["confidence"].clone()
    };
    let judged = json!({"memory_id": bees, "feedback": "VERY_NEGATIVE"});
    call("judged", "POST", "/v1/feedback/", judged.clone());
    let once = confidence();
    call("judged", "POST", "/v1/feedback/", judged.clone());
    assert_eq!(confidence(), once);
    call("judged-again", "POST", "/v1/feedback/", judged);
    assert_ne!(confidence(), once, "another key is another call");

    let erased = json!({"memories": [{"memory_id": boat}, {"memory_id": bees}]});
    call("erase", "DELETE", "/v1/batch/", erased.clone());
    call("erase", "DELETE", "/v1/batch/", erased.clone());
    let answer = gateway.call_with("DELETE", "/v1/batch/", &[("idempotency-key", "other")], erased);
    assert_eq!(name_of(&answer), (404, "not_found"), "another call finds no memory");
    for all in ["/memories?user_id=ada", "/v1/memories/?user_id=ada", "/v2/entities/user/ada/"] {
        call(all, "DELETE", all, Value::Null);
        let later = gateway.stored("Ada has a kite", json!({"user_id": "ada"}));
        call(all, "DELETE", all, Value::Null);
        assert_eq!(read(&later).0, 200, "{all}: what came after the first call stays");
    }
    let by_agent = "/v1/memories/?user_id=ada&agent_id=coach";
    let answer = gateway.call_with("DELETE", by_agent, &[("idempotency-key", "x")], Value::Null);
    assert_eq!(name_of(&answer), (400, "invalid"), "{}", answer.1);
}

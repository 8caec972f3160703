//! Requests against a service of our own: each connection gets the next of its answers.

use std::{
    future::Future,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    pin::pin,
    sync::{Arc, Mutex},
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{Error, ErrorKind, get, post, put};
use crate::{
    activity::{ActivityCx, ActivityInfo, States},
    context::{self, Here},
    id::{RunId, Timestamp},
};

const KEY: &str = "00000000-0000-0000-0000-000000000007-3";

// ------------------------------------------------------------------------------------------------------- the service

/// What the service saw.
#[derive(Debug, Clone)]
struct Seen {
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Seen {
    fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut next = || {
            let mut line = String::new();
            // A TLS greeting, say, is no text.
            reader.read_line(&mut line).ok()?;
            Some(line.trim_end().to_owned())
        };
        let line = next()?;
        let headers: Vec<(String, String)> = std::iter::from_fn(|| {
            let line = next()?;
            let (name, value) = line.split_once(": ")?;
            Some((name.to_lowercase(), value.to_owned()))
        })
        .collect();
        let length =
            headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, n)| n.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        Some(Self { line, headers, body })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

type Answer = Box<dyn FnOnce(&mut TcpStream) + Send>;

struct Service {
    at: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Service {
    fn new(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        thread::spawn(move || {
            for answer in answers {
                let Ok((mut stream, _)) = listener.accept() else { return };
                let Some(request) = Seen::read(&stream) else { continue };
                log.lock().unwrap().push(request);
                answer(&mut stream);
            }
        });
        Self { at, seen }
    }

    fn saying(answers: &[&str]) -> Self {
        Self::new(answers.iter().map(|answer| say(answer)).collect())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// A head without its last lines, a blank line, a body.
fn say(answer: &str) -> Answer {
    let (head, body) = answer.split_once("\n\n").unwrap_or((answer, ""));
    let head = head.replace('\n', "\r\n");
    let text =
        format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    Box::new(move |stream| {
        let _ = stream.write_all(text.as_bytes());
    })
}

/// These bytes, and then nothing for as long as the other side stays.
fn say_and_stall(text: &'static str) -> Answer {
    Box::new(move |stream| {
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.read(&mut [0]);
    })
}

/// These bytes, and the end.
fn say_raw(text: &'static str) -> Answer {
    Box::new(move |stream| {
        let _ = stream.write_all(text.as_bytes());
    })
}

// ------------------------------------------------------------------------------------------------------ the activity

fn attempt(number: u32) -> Arc<ActivityCx> {
    let run_id = RunId::from(Uuid::from_u128(7));
    let info = ActivityInfo {
        run_id,
        workflow_id: run_id.into(),
        workflow: "order",
        step: 3,
        name: "charge",
        attempt: number,
        scheduled_at: Timestamp::from_micros(0),
    };
    ActivityCx::new(info, Arc::new(States::default()))
}

/// Runs `body` as the first attempt of an activity.
fn in_activity<T>(body: impl Future<Output = T>) -> T {
    in_attempt(1, body)
}

fn in_attempt<T>(number: u32, body: impl Future<Output = T>) -> T {
    let cx = attempt(number);
    let mut body = pin!(body);
    let body = std::future::poll_fn(|task| -> Poll<T> {
        let _here = context::enter(Here::Activity(cx.clone()));
        body.as_mut().poll(task)
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(body)
}

fn refused(answers: &[&str]) -> Error {
    let service = Service::saying(answers);
    in_activity(async { post(service.url("/x")).send().await }).unwrap_err()
}

// ------------------------------------------------------------------------------------------------------------- tests

#[test]
fn a_value_goes_there_and_another_one_comes_back() {
    let service = Service::saying(&["201 Created\nx-id: 7\n\n{\"ok\":true}"]);
    let answer: (u16, String, serde_json::Value) = in_activity(async {
        let request =
            post(service.url("/charges?a=1")).query("b", "2 3").header("x-shop", "9").bearer("secret");
        let answer = request.json(&vec![1, 2]).send().await.unwrap();
        (answer.status(), answer.header("x-id").unwrap().to_owned(), answer.json().await.unwrap())
    });
    assert_eq!(answer, (201, "7".into(), serde_json::json!({"ok": true})));
    let seen = &service.seen()[0];
    assert_eq!(seen.line, "POST /charges?a=1&b=2+3 HTTP/1.1");
    assert_eq!(seen.body, b"[1,2]");
    for (name, value) in [
        ("content-type", "application/json"),
        ("x-shop", "9"),
        ("authorization", "Bearer secret"),
        ("idempotency-key", KEY),
    ] {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
}

#[test]
fn r18_the_key_is_the_same_on_every_attempt_and_differs_between_requests() {
    let service = Service::saying(&["200 OK"; 4]);
    for number in [1, 2] {
        in_attempt(number, async {
            let (first, second) = (put(service.url("/1")), get(service.url("/2")));
            second.send().await.unwrap();
            first.send().await.unwrap();
        });
    }
    let keys: Vec<(String, String)> = service
        .seen()
        .iter()
        .map(|seen| (seen.line[..6].to_owned(), seen.header("idempotency-key").unwrap().to_owned()))
        .collect();
    let second = format!("{KEY}-2");
    let round = [("GET /2".to_owned(), second), ("PUT /1".to_owned(), KEY.to_owned())];
    assert_eq!(keys, [round.clone(), round].concat(), "by the order in which they are built");
}

#[test]
fn outside_an_activity_there_is_no_key_and_no_request() {
    let service = Service::saying(&["200 OK"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(post(service.url("/")).send()).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::OutsideActivity, false));
    assert!(service.seen().is_empty());
}

#[test]
fn mistakes_are_said_when_the_request_is_sent() {
    for (request, part) in [
        (post("nonsense"), "no URL"),
        (post("ftp://x/"), "no scheme"),
        (post("http://x/").header("a b", "c"), "`a b`"),
        (post("http://x/").header("a", "c\nd"), "`a`"),
        (post("http://x/").bearer("\n"), "bearer"),
        (post("http://x/").json(&std::collections::BTreeMap::from([((1, 2), 3)])), "JSON"),
    ] {
        let error = in_activity(request.send()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.is_retryable());
    }
    #[cfg(not(feature = "tls"))]
    {
        let error = in_activity(async { get("https://x/").send().await }).unwrap_err();
        assert!(error.to_string().contains("feature `tls`"), "{error}");
    }
}

#[test]
fn r18_a_status_says_whether_another_attempt_may_help() {
    for (status, retryable) in [
        ("400 Bad Request", false),
        ("401 Unauthorized", false),
        ("404 Not Found", false),
        ("409 Conflict", false),
        ("422 Unprocessable Entity", false),
        ("408 Request Timeout", true),
        ("425 Too Early", true),
        ("429 Too Many Requests", true),
        ("500 Internal Server Error", true),
        ("503 Service Unavailable", true),
    ] {
        let error = refused(&[status]);
        assert_eq!(error.is_retryable(), retryable, "{status}");
        assert_eq!(error.status(), status[..3].parse().ok());
    }
}

#[test]
fn a_refusal_shows_what_the_service_said_but_no_secrets() {
    let service = Service::saying(&[&format!("402 Payment Required\n\nno money{}", "!".repeat(5000))]);
    let url = service.url("/charge?token=secret").replace("http://", "http://user:password@");
    let error = in_activity(async { post(url).send().await }).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("POST {}: 402 Payment Required: no money!!", service.url("/charge"))),
        "{text}"
    );
    assert!(text.len() < 700 && text.ends_with('…'), "{text}");
    assert!(!text.contains("secret") && !text.contains("password"), "{text}");
    assert!(service.seen()[0].header("authorization").is_some(), "the URL's credentials are sent");
}

#[test]
fn r18_what_the_service_asks_for_is_carried_to_the_engine() {
    let asked = |header: &str| refused(&[&format!("429 Too Many Requests\nretry-after: {header}")]);
    assert_eq!(asked("3").retry_after(), Some(Duration::from_secs(3)));
    assert_eq!(asked("-1").retry_after(), None);

    #[derive(Debug, thiserror::Error)]
    enum Wrapped {
        #[error("charging")]
        Plain(#[from] Error),
        #[error(transparent)]
        Hidden(Error),
    }
    let three = Some(Duration::from_secs(3));
    let crossed = |error: crate::Error| {
        let text = serde_json::to_string(&error).unwrap();
        assert_eq!(serde_json::from_str::<crate::Error>(&text).unwrap(), error);
        (error.is_permanent(), error.retry_delay())
    };
    assert_eq!(crossed(asked("3").into()), (false, three));
    assert_eq!(crossed(Wrapped::from(asked("3")).into()), (false, three));
    assert_eq!(crossed(Wrapped::Hidden(asked("3")).into()), (false, three));
    assert_eq!(crossed(crate::Error::from(asked("3")).context("charging")), (false, three));
    assert_eq!(crossed(refused(&["404 Not Found"]).into()), (true, None));
    assert_eq!(crossed(Wrapped::Hidden(refused(&["404 Not Found"])).into()), (true, None));
    let words = format!("{:#}", crate::Error::from(Wrapped::from(asked("3"))));
    assert!(words.ends_with(": 429 Too Many Requests"), "the mark has no words: {words}");
}

#[test]
fn an_error_crosses_the_journal_inside_a_declared_one_and_its_verdict_is_noticed() {
    for error in [refused(&["429 Too Many Requests\nretry-after: 3"]), refused(&["404 Not Found\n\ngone"])] {
        let (text, marks) = crate::error::met_while(|| serde_json::to_string(&error).unwrap());
        assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), error);
        assert_eq!(marks, crate::error::Marks::of(&error));
        assert_ne!(marks, Default::default());
    }
}

#[test]
fn r18_307_and_308_repeat_method_body_and_key() {
    let service = Service::saying(&[
        "307 Temporary Redirect\nlocation: /b?x=1",
        "308 Permanent Redirect\nlocation: c",
        "200 OK",
    ]);
    in_activity(async { post(service.url("/a")).bearer("t").json(&1).send().await }).unwrap();
    let seen = service.seen();
    let lines: Vec<&str> = seen.iter().map(|seen| seen.line.as_str()).collect();
    assert_eq!(lines, ["POST /a HTTP/1.1", "POST /b?x=1 HTTP/1.1", "POST /c HTTP/1.1"]);
    for seen in seen {
        assert_eq!((seen.body.as_slice(), seen.header("idempotency-key")), (b"1".as_slice(), Some(KEY)));
        assert_eq!(seen.header("authorization"), Some("Bearer t"));
    }
}

#[test]
fn r18_credentials_do_not_go_to_another_host() {
    let other = Service::saying(&["200 OK"]);
    let service = Service::saying(&[&format!("308 Permanent Redirect\nlocation: {}", other.url("/there"))]);
    let request = || post(service.url("/a")).bearer("t").header("Cookie", "c").header("x-shop", "9").json(&1);
    in_activity(async { request().send().await }).unwrap();
    let seen = &other.seen()[0];
    assert_eq!((seen.header("authorization"), seen.header("cookie")), (None, None));
    assert_eq!((seen.header("x-shop"), seen.header("idempotency-key")), (Some("9"), Some(KEY)));
    assert_eq!(seen.body, b"1");
}

#[test]
fn r18_301_to_303_are_followed_for_a_get_and_refused_for_a_post() {
    for status in ["301 Moved Permanently", "302 Found", "303 See Other"] {
        let redirect = format!("{status}\nlocation: /there");
        let error = refused(&[&redirect]);
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Redirect, false));
        assert!(error.to_string().contains("/there"), "{error}");
        let service = Service::saying(&[&redirect, "200 OK\n\nhere"]);
        let text = in_activity(async { get(service.url("/a")).send().await.unwrap().text().await }).unwrap();
        assert_eq!(text, "here");
    }
}

#[test]
fn redirects_in_a_circle_end() {
    let service = Service::saying(&["308 Permanent Redirect\nlocation: /again"; 12]);
    let error = in_activity(async { post(service.url("/a")).send().await }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Redirect);
    assert_eq!(service.seen().len(), 11);
}

#[test]
fn r18_a_body_that_stalls_ends_with_the_timeout() {
    let began = Instant::now();
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
    let service = Service::new(vec![say_and_stall(head), say_and_stall("")]);
    let limit = Duration::from_millis(300);
    for _ in 0..2 {
        let error = in_activity(async { post(service.url("/")).timeout(limit).send().await?.bytes().await })
            .unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Timeout, true), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn r18_a_body_that_is_too_large_or_breaks_off_is_a_typed_error() {
    let announced = say_raw("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nabc");
    let chunked = say_raw(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\n01234567\r\n8\r\n01234567\r\n0\r\n\r\n",
    );
    let short = say_raw("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc");
    let nonsense = say_raw("nonsense\r\n\r\n");
    let service = Service::new(vec![announced, chunked, short, nonsense]);
    for kind in [ErrorKind::TooLarge, ErrorKind::TooLarge, ErrorKind::Transport, ErrorKind::Transport] {
        let error = in_activity(async { post(service.url("/")).max_body(10).send().await?.bytes().await })
            .unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (kind, true), "{error}");
    }
}

#[test]
fn an_answer_of_another_shape_says_what_it_begins_with() {
    let service = Service::saying(&["200 OK\n\n<html>"]);
    let error = in_activity(async { get(service.url("/")).send().await?.json::<u32>().await }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(error.to_string().contains("<html>") && error.to_string().contains("u32"), "{error}");
}

#[test]
fn nobody_there_is_an_error_that_may_be_retried() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = in_activity(async { get(format!("http://127.0.0.1:{port}/")).send().await }).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Connect, true));
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
}

#[cfg(feature = "tls")]
#[test]
fn https_is_spoken() {
    let service = Service::saying(&["400 Bad Request"]);
    let url = service.url("/").replace("http:", "https:");
    let error = in_activity(async { get(url).timeout(Duration::from_secs(5)).send().await }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "our service speaks no TLS: {error}");
}

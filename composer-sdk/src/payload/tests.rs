//! What goes in comes out, or is refused with its place.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Args, Digest, Given, Payload, arg, arg_ref};
use crate::error::FailureKind;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit;
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Wrapper<T>(T);
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pair(u8, String);
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    price: f64,
    tags: Vec<Option<Wrapper<f64>>>,
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    lines: Vec<Line>,
    by_name: BTreeMap<String, f64>,
}
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
enum Shape {
    Unit,
    New(u8),
    Tuple(u8, u8),
    Struct { a: u8 },
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Tagged {
    Plain,
    With { n: i64 },
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Flat {
    id: u64,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Deep(Option<Box<Deep>>, ());

/// The strict encoder writes what `serde_json` writes, and it reads back as it was.
fn same<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: T) {
    let payload = Payload::encode(&value).unwrap();
    let plain = serde_json::to_string(&value).unwrap();
    assert_eq!(String::from_utf8_lossy(payload.as_bytes()), plain);
    assert_eq!(payload.decode::<T>().unwrap(), value);
}

fn refused<T: Serialize>(value: T, words: &[&str]) {
    let failure = Payload::encode(&value).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Encode);
    for word in words {
        assert!(failure.message.contains(word), "`{word}` is missing in: {failure}");
    }
}

#[test]
fn r11_numbers_are_exact() {
    same(u64::MAX);
    same(i64::MIN);
    same((1_u64 << 53) + 1);
    same(i128::MIN);
    same(u128::MAX);
    same(vec![Some(u128::MAX), None]);
    same(5e-324_f64);
    same(f64::MAX);
    same(1.0_f64);
    same(0.1_f32);
    same((true, 'x', 3_u8, -4_i16, 5_u32));
    let zero = Payload::encode(&-0.0_f64).unwrap().decode::<f64>().unwrap();
    assert!(zero == 0.0 && zero.is_sign_negative());
}

#[test]
fn r11_what_is_no_number_is_refused_with_its_path() {
    refused(f64::NAN, &["NaN", "no number"]);
    refused(f32::NEG_INFINITY, &["-inf"]);
    let line = |price, tag| Line { price, tags: vec![None, Some(Wrapper(tag))] };
    let order = |price, tag, named| Order {
        lines: vec![line(1.0, 1.0), line(price, tag)],
        by_name: BTreeMap::from([("a \"b\"".to_owned(), named)]),
    };
    same(order(1.5, 2.5, 3.5));
    refused(order(f64::NAN, 1.0, 1.0), &["at `lines[1].price`"]);
    refused(order(1.0, f64::INFINITY, 1.0), &["at `lines[1].tags[1]`", "inf"]);
    refused(order(1.0, 1.0, f64::NAN), &["at `by_name.a"]);
    refused(HashMap::from([(1, f64::NAN)]), &["at `1`"]);
}

#[test]
fn r11_an_option_that_would_change_its_meaning_is_refused() {
    same(None::<u8>);
    same(Some(3));
    same(());
    same(Unit);
    same((Some(vec![None, Some(1)]), None::<()>));
    refused(Some(None::<u8>), &["Some(None)", "an enum of your own"]);
    refused(Some(()), &["Some(())"]);
    refused(Some(Unit), &["read back as `None`"]);
    refused(Some(Wrapper(())), &["read back as `None`"]);
    refused(Some(Wrapper(None::<u8>)), &["read back as `None`"]);
    refused(vec![(1, Some(Some(None::<u8>)))], &["at `[0][1]`"]);
    same(Some(Some(3)).flatten());
    same(Some([None::<u8>]));
    same(vec![None, Some(Shape::Unit)]);
}

#[test]
fn every_shape_of_serde_is_written_as_serde_json_writes_it() {
    same(Pair(1, "x".into()));
    same(Wrapper(Pair(1, String::new())));
    same(vec![Shape::Unit, Shape::New(1), Shape::Tuple(1, 2), Shape::Struct { a: 1 }]);
    same(vec![Tagged::Plain, Tagged::With { n: -1 }]);
    same(Flat { id: 7, rest: BTreeMap::from([("x".to_owned(), serde_json::json!({"y": [1, null]}))]) });
    same(Vec::<u8>::new());
    same(BTreeMap::<String, u8>::new());
    same((1, "two".to_owned(), [3.0, 4.5]));
    same("NUL \0 U+FFFF \u{ffff} 🦀 \u{202e}rtl e\u{301} \" \\ \n".to_owned());
    same(std::time::Duration::new(3, 4));
    same(std::net::Ipv4Addr::LOCALHOST);
    same(uuid::Uuid::nil());
    assert_eq!(Payload::encode(&serde_bytes(b"\x00\xff")).unwrap().as_bytes(), b"[0,255]");
}

fn serde_bytes(bytes: &[u8]) -> impl Serialize {
    struct Bytes<'a>(&'a [u8]);
    impl Serialize for Bytes<'_> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(self.0)
        }
    }
    Bytes(bytes)
}

#[test]
fn r11_map_keys_that_json_can_quote_are_kept_and_others_refused() {
    same(BTreeMap::from([(1_u64, "a"), (u64::MAX, "b")].map(|(k, v)| (k, v.to_owned()))));
    same(BTreeMap::from([(i128::MIN, 1)]));
    same(BTreeMap::from([(-1_i8, 1)]));
    same(BTreeMap::from([(true, 1)]));
    same(BTreeMap::from([('"', 1)]));
    same(BTreeMap::from([(Shape::Unit, 1)]));
    same(BTreeMap::from([("quote \" and \\".to_owned(), 1)]));
    refused(BTreeMap::from([((1, 2), 1)]), &["a map's key"]);
    refused(BTreeMap::from([(Some(1), 1)]), &["a map's key"]);
    refused(BTreeMap::from([(Shape::New(1), 1)]), &["a map's key"]);
}

#[test]
fn r11_what_is_accepted_can_be_read_back_however_deep() {
    let deep = |levels: usize| (1..levels).fold(Deep(None, ()), |inner, _| Deep(Some(Box::new(inner)), ()));
    same(deep(126));
    same(deep(127));
    for levels in [128, 1_000] {
        refused(deep(levels), &["127 levels"]);
    }
    let variants = |levels: usize| {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        enum Nest {
            End,
            In(Box<Nest>),
        }
        (0..levels).fold(Nest::End, |inner, _| Nest::In(Box::new(inner)))
    };
    same(variants(127));
    refused(variants(128), &["127 levels"]);
}

#[test]
fn r12_a_value_over_the_limit_is_refused_where_it_was_made() {
    let fits = "x".repeat(Payload::MAX_BYTES - 2);
    assert_eq!(Payload::encode(&fits).unwrap().as_bytes().len(), Payload::MAX_BYTES);
    refused(format!("{fits}x"), &["16777216 bytes"]);
    refused(vec![fits.as_str(), "x"], &["16777216 bytes"]);
    // A value without an end comes to one.
    struct Endless<'a>(&'a str);
    impl Serialize for Endless<'_> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(std::iter::repeat(self.0))
        }
    }
    refused(Endless(&fits[..100_000]), &["16777216 bytes"]);
}

#[test]
fn an_error_of_the_users_serialize_is_kept() {
    struct Broken;
    impl Serialize for Broken {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("the lock is poisoned"))
        }
    }
    refused((1, Broken), &["at `[1]`", "the lock is poisoned"]);
}

#[test]
fn a_value_that_does_not_fit_is_refused_with_its_type_and_place() {
    let failure = Payload::from(b"{\"a\":1}".as_slice()).decode::<Pair>().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Decode);
    assert!(failure.message.contains("Pair") && failure.message.contains("line 1"), "{failure}");
}

fn list(order: &Order, note: Option<&str>) -> Payload {
    let mut args = Args::new();
    args.push("order", arg_ref::<Order>(), order);
    args.push("note", arg::<Option<String>>(), &note.map(str::to_owned));
    args.finish().unwrap()
}

fn order(price: f64) -> Order {
    Order { lines: vec![Line { price, tags: vec![] }], by_name: BTreeMap::new() }
}

#[test]
fn arguments_cross_one_by_one() {
    let payload = list(&order(1.0), Some("quick, [please]"));
    let mut given = Given::new(&payload).unwrap();
    assert_eq!(*given.next("order", arg_ref::<Order>()).unwrap(), order(1.0));
    assert_eq!(given.next("note", arg::<Option<String>>()).unwrap().unwrap(), "quick, [please]");
    given.end().unwrap();

    let none = Args::new().finish().unwrap();
    assert_eq!(none.as_bytes(), b"[]");
    Given::new(&none).unwrap().end().unwrap();
}

#[test]
fn a_bad_argument_is_named() {
    let mut args = Args::new();
    args.push("count", arg::<u8>(), &1);
    args.push("order", arg_ref::<Order>(), &order(f64::NAN));
    args.push("rest", arg::<u8>(), &1);
    let failure = args.finish().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Encode);
    assert!(failure.message.contains("the argument `order`"), "{failure}");
    assert!(failure.message.contains("at `lines[0].price`"), "{failure}");

    let payload = Payload::from(b"[1,\"x\"]".as_slice());
    let mut given = Given::new(&payload).unwrap();
    given.next("count", arg::<u8>()).unwrap();
    let failure = given.next("order", arg::<Order>()).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Decode);
    for word in ["the argument `order`", "Order", "invalid type"] {
        assert!(failure.message.contains(word), "{failure}");
    }
}

#[test]
fn a_last_optional_parameter_may_be_added_while_runs_are_open() {
    let old = Payload::from(b" [ 1 , {\"a\" : [2,3]} ] ".as_slice());
    let mut given = Given::new(&old).unwrap();
    assert_eq!(given.next("n", arg::<u8>()).unwrap(), 1);
    assert_eq!(given.next("map", arg::<BTreeMap<String, Vec<u8>>>()).unwrap()["a"], [2, 3]);
    assert_eq!(given.next("added", arg::<Option<u8>>()).unwrap(), None);
    given.end().unwrap();

    let mut given = Given::new(&old).unwrap();
    given.next("n", arg::<u8>()).unwrap();
    let failure = given.end().unwrap_err();
    assert!(failure.message.contains("more arguments than the 1"), "{failure}");

    let empty = Payload::from(b"[]".as_slice());
    let failure = Given::new(&empty).unwrap().next("n", arg::<u8>()).unwrap_err();
    assert!(failure.message.contains("`n` is missing"), "{failure}");
}

#[test]
fn bytes_that_are_no_list_are_an_error_and_no_panic() {
    for bytes in ["", "[", "]", "null", "{}", "[1", "\"", "[\"", "[\"\\", "[[]", "[{]", "[,]", "[}]", "[1}2]"]
    {
        let payload = Payload::from(bytes.as_bytes());
        let read = Given::new(&payload).and_then(|mut given| {
            given.next("a", arg::<u8>())?;
            given.next("b", arg::<u8>())?;
            given.end()
        });
        assert!(read.is_err(), "{bytes}");
    }
}

fn digest(json: &str) -> Digest {
    Digest::of(&Payload::from(json.as_bytes()))
}

#[test]
fn the_digest_looks_through_the_order_of_keys_and_trailing_nulls() {
    for (one, other) in [
        (
            r#"[{"a":1,"b":{"x":[1,{"p":1,"q":2}],"y":"}"}}]"#,
            r#"[{"b":{"y":"}","x":[1,{"q":2,"p":1}]},"a":1}]"#,
        ),
        (r#"[{"a\"":1,"a":2}]"#, r#"[{"a":2,"a\"":1}]"#),
        ("[1,null]", "[1]"),
        ("[1,null,null]", "[1]"),
        ("[null]", "[]"),
        ("[null,null]", "[]"),
        (r#"[{"a":1},null]"#, r#"[{"a":1}]"#),
        (r#"[{"a":null,"b":{}}]"#, r#"[{"b":{},"a":null}]"#),
    ] {
        assert_eq!(digest(one), digest(other), "{one} and {other}");
    }
}

#[test]
fn the_digest_tells_inputs_apart() {
    let different = [
        "[]",
        "[1]",
        "[2]",
        "[12]",
        "[1,2]",
        "[[1],2]",
        "[null,1]",
        "[\"null\"]",
        "[\",null\"]",
        "[[null]]",
        "[{}]",
        r#"[{"a":1}]"#,
        r#"[{"a":2}]"#,
        r#"[{"b":1}]"#,
        r#"[{"a":{"b":1}}]"#,
        r#"[{"a":1},{"b":1}]"#,
        r#"[{"a":1,"b":1}]"#,
        r#"["{\"a\":1}"]"#,
        r#"[{"a":[{"b":1}]}]"#,
        r#"[{"a":[{"b":2}]}]"#,
        r#"[{"a":1},2]"#,
    ];
    for (n, one) in different.iter().enumerate() {
        for other in &different[n + 1..] {
            assert_ne!(digest(one), digest(other), "{one} and {other}");
        }
    }
}

#[test]
fn digests_never_change_between_versions() {
    for (json, stored) in [
        ("[]", "675868731199239589"),
        ("[1,\"x\"]", "10818101213915491944"),
        (r#"[{"b":1,"a":[null]}]"#, "16523253607858924128"),
    ] {
        assert_eq!(serde_json::to_string(&digest(json)).unwrap(), stored, "{json}");
    }
}

#[test]
fn json_text_that_was_written_already_is_taken_as_it_is() {
    // The shape in which serde_json passes `RawValue` and, with `arbitrary_precision`, its numbers.
    #[derive(Serialize)]
    #[serde(rename = "$serde_json::private::RawValue")]
    struct Raw {
        #[serde(rename = "$serde_json::private::RawValue")]
        json: &'static str,
    }
    let payload = Payload::encode(&(1, Raw { json: "{\"a\": 1}" })).unwrap();
    assert_eq!(payload.as_bytes(), b"[1,{\"a\": 1}]");
}

#[test]
fn r11_without_a_type_numbers_are_exact_or_refused() {
    let read = |json: &str| Payload::from(json.as_bytes()).decode_json();
    for exact in [
        "18446744073709551615",
        "[-9223372036854775808,-0.0]",
        "1e+21",
        "[1.5,{\"-99999999999999999999\":0}]",
    ] {
        assert_eq!(read(exact).unwrap().to_string(), exact);
    }
    for rounded in ["18446744073709551616", "{\"a\":[1,-9223372036854775809]}"] {
        let failure = read(rounded).unwrap_err();
        assert!(
            failure.message.contains("9551616 ") || failure.message.contains("-9223372036854775809"),
            "{failure}"
        );
    }
    assert!(read("\"").is_err());
}

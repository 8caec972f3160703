//! Finds where JSON values end, without reading them. Of text that is no JSON it finds some end, never a panic.

/// How long the text is that starts here, quotes included.
pub(super) fn text_len(json: &[u8]) -> usize {
    let mut escaped = false;
    for (n, byte) in json.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return n + 1,
            _ => {}
        }
    }
    json.len()
}

/// How long the value (or the entry of an object, `"key":value`) is that starts here.
pub(super) fn value_len(json: &[u8]) -> usize {
    let (mut depth, mut n) = (0_usize, 0);
    while let Some(byte) = json.get(n) {
        match byte {
            b'"' => {
                n += text_len(&json[n..]);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => return n + depth,
            b'}' | b']' => depth -= 1,
            b',' if depth == 0 => return n,
            _ => {}
        }
        n += 1;
    }
    n
}

/// The first integer of more than 64 bits: whoever reads without a type makes a float of it.
pub(super) fn large_integer(json: &[u8]) -> Option<&str> {
    let mut n = 0;
    while let Some(byte) = json.get(n) {
        n += match byte {
            b'"' => text_len(&json[n..]),
            b'-' | b'0'..=b'9' => {
                let number = number(&json[n..]);
                if number.parse::<u64>().is_err()
                    && number.parse::<i64>().is_err()
                    && !number.contains(['.', 'e', 'E'])
                {
                    return Some(number);
                }
                number.len()
            }
            _ => 1,
        };
    }
    None
}

/// The number that starts here.
fn number(json: &[u8]) -> &str {
    let end = json.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
    std::str::from_utf8(&json[..end.unwrap_or(json.len())]).expect("invariant: these bytes are ASCII")
}

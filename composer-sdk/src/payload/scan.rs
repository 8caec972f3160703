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

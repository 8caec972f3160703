use composer_sdk::activity;

#[activity]
#[allow(clippy::too_many_arguments)]
async fn sum(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8, j: u8, k: u8, l: u8, m: u8) -> u8 {
    a + b + c + d + e + f + g + h + i + j + k + l + m
}

fn main() {
    drop(sum(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13));
}

use composer_sdk::activity;

#[activity]
async fn show<T: std::fmt::Display>(value: T) -> String {
    value.to_string()
}

#[activity]
async fn first<T: Clone>(values: Vec<T>) -> T {
    values[0].clone()
}

#[activity]
async fn sum<const N: usize>(values: Vec<u8>) -> usize {
    values.len() + N
}

#[activity]
async fn bound(value: u8) -> u8
where
    u8: Copy,
{
    value
}

fn main() {
    // Their uses add nothing.
    let _call: composer_sdk::Call<show> = show(5);
    drop(first(vec![1]));
    drop(sum::<5>(vec![]));
    drop(bound(1));
}

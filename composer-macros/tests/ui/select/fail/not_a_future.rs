async fn f() {
    composer_sdk::select! { n = 5 => n };
    composer_sdk::join!(5, std::future::ready(1));
    let _: Result<_, String> = composer_sdk::try_join!(std::future::ready(Ok(1)), std::future::ready(5));
}

fn main() {}

//! The values of options, each read and checked on its own.

use std::time::Duration;

use syn::{Expr, ExprLit, Ident, Lit, LitInt, LitStr, spanned::Spanned as _};

use super::{Form, Key, Limit, Value};
use crate::duration;

/// A value that came out of a `macro_rules!` stands in an invisible group.
pub(super) fn ungroup(expr: Expr) -> Expr {
    match expr {
        Expr::Group(group) => ungroup(*group.expr),
        expr => expr,
    }
}

fn literal(expr: &Expr) -> Option<&Lit> {
    match expr {
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        _ => None,
    }
}

pub(super) fn name(key: Key) -> syn::Result<LitStr> {
    const EXAMPLE: &str = "name = \"charge_card\"";
    let expr = key.expr(EXAMPLE)?;
    let Some(Lit::Str(text)) = literal(&expr) else {
        return Err(syn::Error::new_spanned(
            &expr,
            format_args!("a name is a literal text: write `{EXAMPLE}`"),
        ));
    };
    check_name("name", text)?;
    Ok(text.clone())
}

pub(super) fn queue(key: Key) -> syn::Result<Expr> {
    const EXAMPLE: &str = "queue = \"partner-api\"";
    let expr = key.expr(EXAMPLE)?;
    match literal(&expr) {
        Some(Lit::Str(text)) => check_name("queue", text)?,
        Some(other) => {
            return Err(syn::Error::new_spanned(other, format_args!("a queue is a text: write `{EXAMPLE}`")));
        }
        None => {}
    }
    Ok(expr)
}

fn check_name(what: &str, text: &LitStr) -> syn::Result<()> {
    let value = text.value();
    let refuse = |why: &str| Err(syn::Error::new_spanned(text, format_args!("a {what} {why}")));
    if value.is_empty() {
        refuse("must not be empty")
    } else if value.len() > 255 {
        refuse("has at most 255 bytes")
    } else if value.chars().any(char::is_control) {
        refuse("has no line breaks, tabs or other control characters")
    } else if value.trim() != value {
        refuse("neither begins nor ends with a space")
    } else {
        Ok(())
    }
}

pub(super) fn version(key: Key) -> syn::Result<LitInt> {
    let expr = key.expr("version = 2")?;
    match literal(&expr) {
        Some(Lit::Int(number)) if number.base10_parse::<u32>().is_ok_and(|n| n > 0) => Ok(number.clone()),
        _ => {
            Err(syn::Error::new_spanned(&expr, "a version is a whole number from 1 on: write `version = 2`"))
        }
    }
}

pub(super) fn flag(key: Key) -> syn::Result<Ident> {
    match key.form {
        Form::Alone => Ok(key.ident),
        Form::Is(_) | Form::List(_) => Err(syn::Error::new_spanned(
            &key.ident,
            format_args!("`{}` stands alone, without a value", key.text),
        )),
    }
}

pub(super) fn limit(key: Key) -> syn::Result<Limit> {
    let example = format!("{} = \"10s\"", key.text);
    let name = key.text.clone();
    let expr = key.expr(&example)?;
    if let Some(Lit::Str(text)) = literal(&expr)
        && text.value() == "none"
    {
        return Ok(Limit::None);
    }
    let value = span_of_time(expr, &name)?;
    if let Value::Literal(Duration::ZERO, span) = value {
        return Err(syn::Error::new(
            span,
            format_args!("nothing is done in no time; `{name} = \"none\"` means no limit"),
        ));
    }
    Ok(Limit::After(value))
}

fn span_of_time(expr: Expr, name: &str) -> syn::Result<Value<Duration>> {
    match literal(&expr) {
        Some(Lit::Str(text)) => match duration::parse(&text.value()) {
            Ok(duration) => Ok(Value::Literal(duration, text.span())),
            Err(message) => Err(syn::Error::new_spanned(text, message)),
        },
        Some(Lit::Int(_) | Lit::Float(_)) => {
            let number = quote::quote!(#expr).to_string();
            Err(syn::Error::new_spanned(
                &expr,
                format_args!("a number alone has no unit: write `{name} = \"{number}s\"`"),
            ))
        }
        Some(other) => Err(syn::Error::new_spanned(other, format_args!("write `{name} = \"10s\"`"))),
        None => Ok(Value::Constant(expr)),
    }
}

pub(super) fn max_attempts(key: Key) -> syn::Result<Value<u32>> {
    let expr = key.expr("max_attempts = 5")?;
    let Some(literal) = number(&expr) else { return Ok(Value::Constant(expr)) };
    match literal {
        Number::Int(0) => {
            Err(syn::Error::new_spanned(&expr, "no attempt at all would be made: write 1 for no retries"))
        }
        Number::Int(n) if u32::try_from(n).is_ok() => Ok(Value::Literal(n as u32, expr.span())),
        _ => Err(syn::Error::new_spanned(&expr, "attempts are counted: write a whole number from 1 on")),
    }
}

pub(super) fn delay(key: Key, example: &str) -> syn::Result<Value<Duration>> {
    let name = key.text.clone();
    span_of_time(key.expr(&format!("{name} = \"{example}\""))?, &name)
}

pub(super) fn factor(key: Key) -> syn::Result<Value<f64>> {
    float(key, "factor = 2.0", "delays must not shrink: write a number from 1.0 on", |n| n >= 1.0)
}

pub(super) fn jitter(key: Key) -> syn::Result<Value<f64>> {
    let why = "jitter is the random part of a delay: write a number from 0.0 (none) to 1.0 (all of it)";
    float(key, "jitter = 1.0", why, |n| (0.0..=1.0).contains(&n))
}

fn float(key: Key, example: &str, why: &str, allowed: fn(f64) -> bool) -> syn::Result<Value<f64>> {
    let expr = key.expr(example)?;
    match number(&expr) {
        None => Ok(Value::Constant(expr)),
        Some(Number::Int(n)) if allowed(n as f64) => Ok(Value::Literal(n as f64, expr.span())),
        Some(Number::Float(n)) if allowed(n) && n.is_finite() => Ok(Value::Literal(n, expr.span())),
        Some(_) => Err(syn::Error::new_spanned(&expr, why)),
    }
}

enum Number {
    Int(i128),
    Float(f64),
    /// A literal that is no number, such as `"5"`.
    Other,
}

/// The number that a literal stands for; `None` when the expression is no literal.
fn number(expr: &Expr) -> Option<Number> {
    if let Expr::Unary(unary) = expr
        && matches!(unary.op, syn::UnOp::Neg(_))
    {
        return number(&unary.expr).map(|number| match number {
            Number::Int(n) => Number::Int(-n),
            Number::Float(n) => Number::Float(-n),
            Number::Other => Number::Other,
        });
    }
    Some(match literal(expr)? {
        Lit::Int(int) => int.base10_parse().map_or(Number::Other, Number::Int),
        Lit::Float(float) => float.base10_parse().map_or(Number::Other, Number::Float),
        _ => Number::Other,
    })
}

//! Sorted sets.

use bytes::Bytes;

use super::super::Value;
use super::super::call::{Call, NOT_FLOAT, NOT_INT, Reaction, SYNTAX, Stop, parse_float, parse_int};
use super::super::number::score as score_text;
use super::super::zset::Zset;
use super::flag::{DENY_OOM, WRITE};
use super::lists::span;
use super::{Command, is};

pub(super) const TABLE: &[Command] = &[
    Command::data("ZADD", -4, WRITE | DENY_OOM, add),
    Command::data("ZREM", -3, WRITE, remove),
    Command::data("ZREMRANGEBYSCORE", 4, WRITE, remove_by_score),
    Command::data("ZRANGE", -4, 0, |call| range(call, Form::default())),
    Command::data("ZRANGEBYSCORE", -4, 0, |call| range(call, Form { by_score: true, fixed: true, ..Form::default() })),
    Command::data("ZREVRANGEBYSCORE", -4, 0, |call| {
        range(call, Form { by_score: true, fixed: true, reverse: true, ..Form::default() })
    }),
    Command::data("ZREVRANGE", -4, 0, |call| range(call, Form { fixed: true, reverse: true, ..Form::default() })),
    Command::data("ZCOUNT", 4, 0, count_by_score),
    Command::data("ZCARD", 2, 0, size),
    Command::data("ZSCORE", 3, 0, score),
    Command::data("ZRANK", -3, 0, rank),
];

/// The options of `ZADD`.
#[derive(Clone, Copy, Default)]
struct Rules {
    only_new: bool,
    only_present: bool,
    only_greater: bool,
    only_less: bool,
    count_changes: bool,
    increment: bool,
}

fn add(call: &mut Call<'_>) -> Reaction {
    let key = call.word(1)?;
    let (rules, start) = add_rules(call);
    let pairs = call.args.get(start..).unwrap_or_default();
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    check(rules, pairs.len() / 2)?;
    let mut scored = Vec::with_capacity(pairs.len() / 2);
    for pair in pairs.chunks_exact(2) {
        if let [score, member] = pair {
            scored.push((parse_float(score).ok_or(NOT_FLOAT)?, member));
        }
    }
    if call.db.zset(key, call.at)?.is_none() && rules.only_present {
        return Ok(if rules.increment { Value::Nil } else { Value::Int(0) });
    }
    let profile = call.profile;
    let double = |n| Value::Double(score_text(n, profile));
    let zset = call.db.zset_or_new(key, call.at)?;
    let (mut added, mut updated, mut last) = (0, 0, Value::Nil);
    for (score, member) in scored {
        match place(zset, rules, score, member)? {
            Placed::Added(score) => {
                added += 1;
                last = double(score);
            }
            Placed::Updated(score) => {
                updated += 1;
                last = double(score);
            }
            Placed::Same(score) => last = double(score),
            Placed::Refused => {}
        }
    }
    if added + updated > 0 {
        call.db.changed(key);
    }
    Ok(match rules {
        Rules { increment: true, .. } => last,
        Rules { count_changes: true, .. } => Value::Int(added + updated),
        _ => Value::Int(added),
    })
}

/// The options, and where the scores begin.
fn add_rules(call: &Call<'_>) -> (Rules, usize) {
    let mut rules = Rules::default();
    let mut place = 2;
    for word in call.args.iter().skip(2) {
        match word {
            _ if is(word, "NX") => rules.only_new = true,
            _ if is(word, "XX") => rules.only_present = true,
            _ if is(word, "GT") => rules.only_greater = true,
            _ if is(word, "LT") => rules.only_less = true,
            _ if is(word, "CH") => rules.count_changes = true,
            _ if is(word, "INCR") => rules.increment = true,
            _ => break,
        }
        place += 1;
    }
    (rules, place)
}

fn check(rules: Rules, pairs: usize) -> Result<(), Stop> {
    if rules.only_new && rules.only_present {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    let exclusive = [rules.only_new, rules.only_greater, rules.only_less];
    if exclusive.into_iter().filter(|set| *set).count() > 1 {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if rules.increment && pairs > 1 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    Ok(())
}

/// What became of one member.
enum Placed {
    Added(f64),
    Updated(f64),
    Same(f64),
    Refused,
}

fn place(zset: &mut Zset, rules: Rules, score: f64, member: &Bytes) -> Result<Placed, Stop> {
    let Some(now) = zset.score(member) else {
        if rules.only_present {
            return Ok(Placed::Refused);
        }
        zset.insert(member.clone(), score);
        return Ok(Placed::Added(score));
    };
    if rules.only_new {
        return Ok(Placed::Refused);
    }
    let score = if rules.increment { now + score } else { score };
    if score.is_nan() {
        return Err("ERR resulting score is not a number (NaN)".into());
    }
    if rules.only_less && score >= now || rules.only_greater && score <= now {
        return Ok(Placed::Refused);
    }
    if score == now {
        return Ok(Placed::Same(score));
    }
    zset.insert(member.clone(), score);
    Ok(Placed::Updated(score))
}

fn remove(call: &mut Call<'_>) -> Reaction {
    let key = call.word(1)?;
    let Some(zset) = call.db.zset(key, call.at)? else { return Ok(Value::Int(0)) };
    let removed = call.args.iter().skip(2).filter(|member| zset.remove(member)).count();
    if removed > 0 {
        call.db.remove_if_empty(key);
        call.db.changed(key);
    }
    Ok(count(removed))
}

fn remove_by_score(call: &mut Call<'_>) -> Reaction {
    let key = call.word(1)?;
    let scores = Scores::parse(call.word(2)?, call.word(3)?)?;
    let Some(zset) = call.db.zset(key, call.at)? else { return Ok(Value::Int(0)) };
    let members: Vec<Bytes> = scores.of(zset).map(|(member, _)| member.clone()).collect();
    for member in &members {
        zset.remove(member);
    }
    if !members.is_empty() {
        call.db.remove_if_empty(key);
        call.db.changed(key);
    }
    Ok(count(members.len()))
}

/// A range of scores.
#[derive(Clone, Copy)]
struct Scores {
    least: f64,
    without_least: bool,
    most: f64,
    without_most: bool,
}

impl Scores {
    fn parse(least: &[u8], most: &[u8]) -> Result<Self, Stop> {
        let bound = |word: &[u8]| {
            let without = word.first() == Some(&b'(');
            let digits = word.get(usize::from(without)..).unwrap_or_default();
            // Nothing after the bracket is taken for a zero.
            let number = if without && digits.is_empty() { Some(0.0) } else { parse_float(digits) };
            number.map(|number| (number, without)).ok_or_else(|| Stop::from("ERR min or max is not a float"))
        };
        let ((least, without_least), (most, without_most)) = (bound(least)?, bound(most)?);
        Ok(Self { least, without_least, most, without_most })
    }

    fn of(self, zset: &Zset) -> impl Iterator<Item = (&Bytes, f64)> + Clone {
        let below = move |score: f64| score < self.most || score == self.most && !self.without_most;
        let above = move |score: f64| score > self.least || !self.without_least;
        zset.from(self.least).take_while(move |(_, score)| below(*score)).filter(move |(_, score)| above(*score))
    }
}

/// What kind of range is asked for.
#[derive(Clone, Copy, Default)]
struct Form {
    by_score: bool,
    reverse: bool,
    with_scores: bool,
    limit: Option<(i64, i64)>,
    /// The command's name says which kind: no options for it.
    fixed: bool,
}

fn range(call: &mut Call<'_>, form: Form) -> Reaction {
    let form = range_form(call, form)?;
    let key = call.word(1)?;
    let found: Vec<(Bytes, f64)> = if form.by_score {
        let (least, most) = if form.reverse { (3, 2) } else { (2, 3) };
        let scores = Scores::parse(call.word(least)?, call.word(most)?)?;
        let Some(zset) = call.db.zset(key, call.at)? else { return Ok(Value::Array(Vec::new())) };
        let mut found: Vec<_> = scores.of(zset).map(|(member, score)| (member.clone(), score)).collect();
        if form.reverse {
            found.reverse();
        }
        limited(found, form.limit)
    } else {
        let (start, stop) = (call.int(2)?, call.int(3)?);
        let Some(zset) = call.db.zset(key, call.at)? else { return Ok(Value::Array(Vec::new())) };
        let (from, length) = span(start, stop, zset.len());
        let copy = |(member, score): (&Bytes, f64)| (member.clone(), score);
        if form.reverse {
            zset.iter().rev().skip(from).take(length).map(copy).collect()
        } else {
            zset.iter().skip(from).take(length).map(copy).collect()
        }
    };
    let double = |n| Value::Double(score_text(n, call.profile));
    Ok(Value::Array(match (form.with_scores, call.resp) {
        (false, _) => found.into_iter().map(|(member, _)| Value::Bulk(member)).collect(),
        (true, 3) => {
            found.into_iter().map(|(member, score)| Value::Array(vec![Value::Bulk(member), double(score)])).collect()
        }
        (true, _) => found.into_iter().flat_map(|(member, score)| [Value::Bulk(member), double(score)]).collect(),
    }))
}

fn range_form(call: &mut Call<'_>, mut form: Form) -> Result<Form, Stop> {
    let args = call.args;
    let mut place = 4;
    while let Some(word) = args.get(place) {
        place += 1;
        if is(word, "WITHSCORES") {
            form.with_scores = true;
        } else if is(word, "LIMIT")
            && let (Some(offset), Some(limit)) = (args.get(place), args.get(place + 1))
        {
            form.limit = Some((parse_int(offset).ok_or(NOT_INT)?, parse_int(limit).ok_or(NOT_INT)?));
            place += 2;
        } else if !form.fixed && is(word, "REV") {
            form.reverse = true;
        } else if !form.fixed && is(word, "BYSCORE") {
            form.by_score = true;
        } else {
            if !form.fixed && is(word, "BYLEX") {
                call.gaps.push("ZRANGE BYLEX".into());
            }
            return Err(SYNTAX.into());
        }
    }
    if form.limit.is_some_and(|(_, limit)| limit != -1) && !form.by_score {
        return Err("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX".into());
    }
    Ok(form)
}

fn limited(found: Vec<(Bytes, f64)>, limit: Option<(i64, i64)>) -> Vec<(Bytes, f64)> {
    let Some((offset, limit)) = limit else { return found };
    let Ok(offset) = usize::try_from(offset) else { return Vec::new() };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    found.into_iter().skip(offset).take(limit).collect()
}

fn count_by_score(call: &mut Call<'_>) -> Reaction {
    let scores = Scores::parse(call.word(2)?, call.word(3)?)?;
    let zset = call.db.zset(call.word(1)?, call.at)?;
    Ok(count(zset.map_or(0, |zset| scores.of(zset).count())))
}

fn size(call: &mut Call<'_>) -> Reaction {
    Ok(count(call.db.zset(call.word(1)?, call.at)?.map_or(0, |zset| zset.len())))
}

fn score(call: &mut Call<'_>) -> Reaction {
    let member = call.word(2)?;
    let profile = call.profile;
    let score = call.db.zset(call.word(1)?, call.at)?.and_then(|zset| zset.score(member));
    Ok(score.map_or(Value::Nil, |score| Value::Double(score_text(score, profile))))
}

fn rank(call: &mut Call<'_>) -> Reaction {
    if call.args.len() > 3 {
        // From 7.2 on there may be a word after the member.
        if call.profile.at_least(7, 2) {
            call.gaps.push("ZRANK WITHSCORE".into());
        }
        return Err("ERR wrong number of arguments for 'zrank' command".into());
    }
    let member = call.word(2)?;
    let zset = call.db.zset(call.word(1)?, call.at)?;
    Ok(zset.and_then(|zset| zset.iter().position(|(other, _)| other == member)).map_or(Value::Nil, count))
}

fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

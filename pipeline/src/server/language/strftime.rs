//! Dates in chat templates: what `strftime` of C and Python does with the letters that templates use, in UTC.

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// `format` at a moment, in seconds since 1970-01-01 UTC. Letters it does not know stay as they are.
pub(super) fn strftime(format: &str, unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    // 1970-01-01 was a Thursday.
    let weekday = DAYS[days.rem_euclid(7) as usize];
    let month_name = MONTHS[month as usize - 1];
    let of_year = days - days_of(year, 1, 1) + 1;
    let mut text = String::with_capacity(format.len() + 16);
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('Y') => text += &format!("{year:04}"),
            Some('y') => text += &format!("{:02}", year.rem_euclid(100)),
            Some('m') => text += &format!("{month:02}"),
            Some('d') => text += &format!("{day:02}"),
            Some('B') => text += month_name,
            Some('b' | 'h') => text += &month_name[..3],
            Some('A') => text += weekday,
            Some('a') => text += &weekday[..3],
            Some('j') => text += &format!("{of_year:03}"),
            Some('H') => text += &format!("{:02}", second / 3_600),
            Some('M') => text += &format!("{:02}", second / 60 % 60),
            Some('S') => text += &format!("{:02}", second % 60),
            Some('F') => text += &format!("{year:04}-{month:02}-{day:02}"),
            Some('%') => text.push('%'),
            Some(other) => text.extend(['%', other]),
            None => text.push('%'),
        }
    }
    text
}

/// Year, month and day of a day since 1970-01-01. Years are counted from March, so that the leap day is the last.
fn civil(days: i64) -> (i64, i64, i64) {
    // Days since 0000-03-01.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months of 31 and 30 days in turn, as March to July and August to December.
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// The other way round.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_have_their_dates() {
        let all = "%A %a %d %B %b %Y %y %m %j %H:%M:%S %F %% %Q %";
        assert_eq!(
            strftime(all, 0),
            "Thursday Thu 01 January Jan 1970 70 01 001 00:00:00 1970-01-01 % %Q %"
        );
        assert_eq!(strftime("%d %b %Y %a %j", 1_709_164_800), "29 Feb 2024 Thu 060");
        assert_eq!(strftime("%F %H:%M:%S", 946_684_799), "1999-12-31 23:59:59");
        assert_eq!(strftime("%F %A", 951_868_800), "2000-03-01 Wednesday");
        assert_eq!(strftime("%F", -1), "1969-12-31");
    }

    #[test]
    fn every_day_of_four_centuries_goes_there_and_back() {
        for days in -146_097..146_097 {
            let (year, month, day) = civil(days);
            assert!((1..=12).contains(&month) && (1..=31).contains(&day));
            assert_eq!(days_of(year, month, day), days);
        }
    }
}

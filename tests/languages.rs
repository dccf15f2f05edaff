//! Languages other than English, through a real shard.
//!
//! A memory is found by another form of one of its words, or by a word of a script without spaces.
//! The encoder is the stand-in, so only words count.

use crate::support::in_process::InProcess;
use domain::Time;
use serde_json::json;

fn turn(service: &mut InProcess, user: &str, content: &str) -> &'static str {
    service.outcome_of(&json!({"type": "turn", "user": user, "session": "s", "content": content}))
}

/// Texts of the memories that share a word with the question, best first.
fn found_by_words(service: &mut InProcess, user: &str, question: &str) -> Vec<String> {
    let request = json!({"type": "recall", "user": user, "query": question, "limit": 10,
        "explain": true, "format": "none"});
    service
        .memories(Time(0), &request)
        .iter()
        .filter(|memory| memory["explain"]["bm25"].as_f64().is_some_and(|score| score > 0.0))
        .map(|memory| memory["content"].as_str().expect("a memory has a text").to_owned())
        .collect()
}

/// Stores all texts of a user and expects each as the best answer to its questions.
fn check(user: &str, texts: &[(&str, &[&str])]) {
    let mut service = InProcess::with_hash_model();
    for (content, _) in texts {
        assert_eq!(turn(&mut service, user, content), "kept", "{content}");
    }
    for (content, questions) in texts {
        for question in *questions {
            let found = found_by_words(&mut service, user, question);
            assert_eq!(found.first().map(String::as_str), Some(*content), "{question}: {found:#?}");
        }
    }
}

#[test]
fn a_memory_in_german_is_found_by_another_form_of_its_word() {
    check(
        "jana",
        &[
            (
                "Ich habe mit meiner Schwester zwei Häuser in Lissabon gekauft",
                &["Haus", "Wo steht mein Haus?", "Hauskauf der Schwestern"],
            ),
            (
                "Meine Tochter ist gegen alle Nüsse allergisch",
                &["Nuss", "Welche Nuss darf die Tochter nicht essen?"],
            ),
            (
                "Wir fahren im Sommer mit den Rädern nach Dänemark",
                &["Rad", "Wohin geht es mit dem Rad?"],
            ),
            (
                "Mein Bruder spielt seit zehn Jahren Klavier",
                &["Klaviere", "Was kann der Bruder spielen?"],
            ),
        ],
    );
}

#[test]
fn a_memory_in_french_spanish_or_turkish_is_found_by_another_form_of_its_word() {
    check(
        "marie",
        &[
            (
                "J'ai acheté deux chevaux avec ma soeur l'année dernière",
                &["cheval", "Quel cheval ai-je acheté ?"],
            ),
            (
                "Ma fille est allergique aux noix depuis toujours",
                &["allergies", "Quelles allergies a ma fille ?"],
            ),
            (
                "Mon frère travaille comme professeur à Lyon",
                &["travailler", "Où est-ce que mon frère travaillait ?"],
            ),
        ],
    );
    check(
        "lola",
        &[
            (
                "El año pasado compré dos casas en Sevilla con mi hermana",
                &["casa", "¿Dónde está mi casa?"],
            ),
            (
                "Mi hijo es alérgico a las nueces y a los cacahuetes",
                &["cacahuete", "¿Puede comer un cacahuete?"],
            ),
        ],
    );
    check(
        "ece",
        &[
            ("Geçen yıl kardeşimle birlikte iki köpek aldık", &["köpekler", "Köpeklerin adı ne?"]),
            ("Kızım her akşam evde kitap okuyor", &["kitaplar", "Hangi kitapları okuyor?"]),
        ],
    );
}

#[test]
fn a_memory_in_russian_greek_or_tamil_is_found_by_another_form_of_its_word() {
    check(
        "olga",
        &[
            ("Я купил новую собаку", &["собаки", "Какой породы собака?"]),
            ("Мой брат работает учителем в Москве", &["учитель", "Что делает брат?"]),
            ("У меня аллергия на орехи", &["орех", "Какие орехи нельзя?"]),
        ],
    );
    check(
        "nikos",
        &[
            ("Αγόρασα ένα σπίτι στην Πάτρα", &["σπίτια", "Πόσα σπίτια αγόρασα;"]),
            ("Ο σκύλος μου είναι άρρωστος", &["σκύλους"]),
        ],
    );
    check("selvi", &[("எனக்கு இரண்டு வீடுகள் உள்ளன", &["வீடு"]), ("என் நாய் பெரியது", &["நாய்கள்"])]);
}

#[test]
fn a_memory_in_japanese_is_found_by_one_of_its_words() {
    check(
        "yuki",
        &[
            (
                "先月リスボンに引っ越しました。",
                &["リスボン", "リスボンの天気はどうですか", "いつ引っ越したの？"],
            ),
            ("猫を二匹飼っています。", &["猫", "猫の名前は何ですか"]),
            (
                "妹は京都の大学で働いています。",
                &["妹", "妹はどこで働いていますか", "京都には誰がいますか"],
            ),
            ("ナッツのアレルギーがあります。", &["アレルギー", "どんなアレルギーですか"]),
        ],
    );
}

#[test]
fn a_memory_in_chinese_is_found_by_one_of_its_words() {
    check(
        "wei",
        &[
            ("我上个月搬到了里斯本。", &["里斯本", "里斯本的天气怎么样？"]),
            ("我养了两只猫。", &["猫", "猫叫什么名字？"]),
            ("我妹妹在北京的大学工作。", &["妹妹", "妹妹做什么工作？", "谁在北京？"]),
            ("我对花生过敏。", &["花生", "我对什么过敏？"]),
        ],
    );
}

#[test]
fn a_memory_in_thai_or_korean_is_found_by_one_of_its_words() {
    check(
        "mali",
        &[
            ("ฉันย้ายไปลิสบอนเมื่อเดือนที่แล้ว", &["ลิสบอน", "อากาศที่ลิสบอนเป็นอย่างไร"]),
            ("ฉันเลี้ยงแมวสองตัว", &["แมว", "แมวชื่ออะไร"]),
            ("น้องสาวทำงานที่มหาวิทยาลัยในเชียงใหม่", &["มหาวิทยาลัย", "น้องสาวทำงานที่ไหน"]),
            ("ฉันแพ้ถั่วลิสง", &["ถั่ว", "ฉันกินถั่วลิสงได้ไหม"]),
        ],
    );
    check(
        "jiwoo",
        &[
            ("지난달에 리스본으로 이사했어요.", &["리스본", "리스본은 어때요?"]),
            ("고양이를 두 마리 키워요.", &["고양이", "고양이가 몇 마리예요?"]),
            ("여동생은 부산에서 일해요.", &["부산", "여동생이 어디에서 일해요?"]),
        ],
    );
}

#[test]
fn a_text_in_two_scripts_is_found_by_either() {
    check(
        "lin",
        &[
            ("我住在 Lisbon, near the river", &["Lisbon", "river", "我住在哪里？"]),
            ("昨日 San Francisco の友達に会いました", &["San Francisco", "友達"]),
            ("Купил билеты на Foo Fighters", &["Foo Fighters", "билет"]),
        ],
    );
}

#[test]
fn a_repetition_is_merged_and_a_negation_is_not() {
    let mut service = InProcess::with_hash_model();
    for content in [
        "Ich wohne seit Mai mit meiner Schwester in Berlin.",
        "京都の大学で働いています。",
        "ฉันเลี้ยงแมวสองตัว",
        "我每个周末都和朋友们一起去公园吃肉",
    ] {
        assert_eq!(turn(&mut service, "kim", content), "kept", "{content}");
        assert_eq!(
            turn(&mut service, "kim", &format!("{}!", content.trim_end_matches(['.', '。']))),
            "merged",
            "{content}"
        );
    }
    for content in [
        "Ich wohne seit Mai nicht mit meiner Schwester in Berlin.",
        "我每个周末都不和朋友们一起去公园吃肉",
    ] {
        assert_eq!(turn(&mut service, "kim", content), "kept", "{content}");
    }
}

#[test]
fn a_forget_query_matches_words_of_its_language() {
    let mut service = InProcess::with_hash_model();
    for (content, query) in [
        ("Ich habe mit meiner Schwester zwei Häuser in Lissabon gekauft", "Haus Lissabon"),
        ("Мой брат работает учителем в Москве", "учитель"),
        ("先月リスボンに引っ越しました。", "リスボン"),
        ("我养了两只猫。", "猫"),
        ("น้องสาวทำงานที่มหาวิทยาลัย", "มหาวิทยาลัย"),
    ] {
        assert_eq!(turn(&mut service, "kim", content), "kept", "{content}");
        assert_eq!(found_by_words(&mut service, "kim", query), [content]);
        service.outcome_of(&json!({"type": "forget", "user": "kim", "query": query}));
        assert!(found_by_words(&mut service, "kim", query).is_empty(), "{query}");
    }
}

#[test]
fn a_question_is_stemmed_in_the_languages_of_its_own_user_only() {
    let mut service = InProcess::with_hash_model();
    let bought = "Wir haben mit meiner Schwester zwei Häuser in Lissabon gekauft";
    turn(&mut service, "jana", bought);
    turn(&mut service, "tom", "The Haus is what my friends call the club that I go to on Fridays");
    assert_eq!(found_by_words(&mut service, "jana", "Haus"), [bought]);
    assert!(
        found_by_words(&mut service, "tom", "Häuser").is_empty(),
        "no memory of Tom is in German"
    );
}

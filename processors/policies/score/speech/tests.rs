//! Plain statements and small talk in each covered language. None of the sentences stands in an
//! evaluation file.

use super::super::reading::Reading;
use super::*;

fn speech(text: &str) -> SpeechClass {
    read(&Reading::of(text), &Words::of(text), &Rarity::flat())
}

/// Checks that the gate keeps each text whatever its score.
fn states(texts: &[&str]) {
    let wrong: Vec<_> = texts
        .iter()
        .map(|text| (text, speech(text)))
        .filter(|(_, speech)| speech.small_talk.is_some() || !(speech.states || speech.unjudged))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn is_small_talk(expected: SmallTalk, texts: &[&str]) {
    for text in texts {
        assert_eq!(speech(text).small_talk, Some(expected), "{text:?}");
    }
}

/// Checks that no text is kept for a statement. A short one may still be kept as unjudged.
fn do_not_state(texts: &[&str]) {
    let wrong: Vec<_> = texts
        .iter()
        .filter(|text| speech(text).states || statements(&Reading::of(text).plain).states)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Checks that the score decides about each text.
fn states_nothing(texts: &[&str]) {
    for text in texts {
        let speech = speech(text);
        assert!(!speech.states && !speech.unjudged, "{text:?}: {speech:?}");
    }
}

#[test]
fn a_short_english_statement_is_recognised() {
    states(&[
        "I have asthma.",
        "I'm 34.",
        "I drive a van for a bakery.",
        "we rent",
        "We have twins.",
        "My name's Oluchi.",
        "my blood type is O negative",
        "Our wifi is called Thunderpants",
        "Our budget is 20k",
        "our kitchen is being redone",
        "The deadline is Friday",
        "The meeting moved to Tuesday",
        "the launch is on 3 May",
        "call me Bex",
        // No "I" and no "my".
        "havent sent the papers to Mo",
        "not inviting the cousins this time",
        "cancelled the gym",
        "keeping the old boiler",
        "use Courier",
        "it's a boy!",
        "Mina's been moved to nights",
        "the heaters are off now",
        "joe gave you 30 for the tent",
        "People call me Bear.",
        "my sister's in Cork",
        "my dentist is Dr. Huang",
        "My landlord's a nightmare",
        "allergic to penicillin",
        "Vegetarian since school.",
        "lactose intolerant, sadly",
        "no onions, they give me hives",
        "no kids",
        "No pets allowed in my flat",
        "don't drink coffee",
        "don't eat pork",
        "can't swim",
        "never learned to drive",
        "not a morning person",
        "not into football",
        "born in Gdynia",
        "moved here in spring",
        "grew up on a farm",
        "married, two boys",
        "retired last year",
        "divorced",
        "work nights",
        "from Ghent",
        "got a new boiler",
        "just started at the library",
        "used to play the oboe",
        "learning Welsh",
        "Anna is my aunt",
        "Tariq is my boss and hates meetings",
        "she works at the harbour",
        "He's a plumber.",
        "his name is Edmund",
        "They live above a chip shop",
        "her birthday is in June",
        "the server runs Debian 12",
        "The repo is at version 3.4",
        "the gate code is 4471",
        "the cat is called Biscuit",
        "Can my 2-year-old have nuts?",
        "how do I get from my flat in Hulme to work?",
        "I've got a bad knee, what shoes should I buy?",
        "what can I cook, I'm coeliac?",
        "Nice! I teach chemistry.",
        "That's cool, I grew up with horses",
        "ok, my new number ends in 88",
        "Thanks! I moved to Bergen in March.",
        "I think cricket is dull",
        "I believe in ghosts",
        "thursdays suit me best",
        "running makes me happy",
        "my mum passed away in 2015",
        "I can't stand coriander",
        "i no longer work there",
        "We're closing the Leeds office",
    ]);
}

#[test]
fn technical_english_is_read_as_english() {
    let known = "the database port depends file contains input validators user let use decided billing \
                 service talks runs this api is migrating quarter frontend dates march";
    let known: Vec<String> = known.split_whitespace().map(str::to_owned).collect();
    let rarity = Rarity::from_vocabulary(&known);
    let speech = |text: &str| read(&Reading::of(text), &Words::of(text), &rarity);
    for text in [
        "Let's use PostgreSQL",
        "Let's use Redis",
        "Database on port 5432",
        "auth.js depends on jwt.js",
        "File: utils/validation.js contains input validators",
        "User is migrating to PostgreSQL this quarter",
        "This API uses JWT authentication",
        "Decided to use React for frontend",
        "The billing service runs on Kubernetes",
        "dates: 8 to 15 March?",
    ] {
        let speech = speech(text);
        assert!(speech.states && !speech.unjudged, "{text:?}: {speech:?}");
    }
    do_not_state(&["let's use that one", "it uses a lot of words", "that handles it"]);
    for text in ["Hund beisst Katze im Bahnhof", "Termin am Gleis 5, HNO", "rekening v. Jan"] {
        assert!(!is_of_english_words(text, &Words::of(text), &rarity), "{text:?} is not English");
    }
}

#[test]
fn a_reminder_is_a_statement_and_a_question_in_its_words_is_none() {
    states(&[
        "Remind me to call Bob",
        "please remind us not to park there",
        "Remind me that the rent is due on the 3rd",
        "Can you remind me to water the plants?",
        "hey, could you please remind me tomorrow to post the form?",
        "remind me every Monday",
        "Erinnere mich daran, Bob anzurufen",
        "Kannst du mich daran erinnern, Bob anzurufen?",
        "Rappelle-moi d'appeler Bob",
        "Peux-tu me rappeler d'appeler Bob ?",
        "Recuérdame llamar a Bob",
        "Recuérdame comprar leche",
        "Ricordami di chiamare Bob",
        "Puoi ricordarmi di chiamare Bob?",
        "Me lembre de ligar para o Bob",
        "Lembra-me de ligar ao Bob",
        "Você pode me lembrar de ligar para o Bob?",
        "Herinner me eraan om Bob te bellen",
        "Kun je me eraan herinneren Bob te bellen?",
        "ボブに電話するようにリマインドして",
        "明日ボブに電話するのを思い出させて",
        "提醒我给鲍勃打电话",
        "你能提醒我给鲍勃打电话吗",
    ]);
    do_not_state(&[
        "Remind me what revalidation stands on again",
        "remind me how that works",
        "Can you remind me which one it was?",
        "Puoi ricordarmi come si chiama?",
        "¿Puedes recordarme cómo se llama?",
        "remind me of the recipe",
        "Remind me again?",
        "remind me later",
        "that reminds me",
    ]);
}

#[test]
fn one_word_beside_a_greeting_is_kept_unless_it_is_a_name() {
    states(&["night owl", "hey, vegan", "thanks, diabetic", "Hello, widowed.", "morning person"]);
    is_small_talk(SmallTalk::Greeting, &["Hi Priya", "Priya, hello", "Good morning, me again"]);
    is_small_talk(SmallTalk::Thanks, &["Thanks, Tom!", "muchas gracias eh"]);
}

#[test]
fn english_small_talk_is_classified_by_its_sort() {
    is_small_talk(
        SmallTalk::Greeting,
        &[
            "Hello!",
            "hey there",
            "Good morning",
            "hiya, how are you?",
            "Bye for now",
            "night night",
            "Hi Priya",
            "heyyyy",
        ],
    );
    is_small_talk(
        SmallTalk::Thanks,
        &[
            "thanks",
            "Thank you so much!",
            "cheers mate",
            "ta",
            "Thanks, that's great!",
            "thanks a lot, Sam",
        ],
    );
    is_small_talk(
        SmallTalk::Acknowledgement,
        &[
            "ok",
            "Yes please",
            "sure, go ahead",
            "got it",
            "hmm, not sure",
            "I see.",
            "will do",
            "makes sense",
            "yep yep",
        ],
    );
    is_small_talk(
        SmallTalk::Praise,
        &["wow", "that's perfect", "love it!!", "brilliant", "so cool haha"],
    );
    is_small_talk(SmallTalk::Filler, &["haha", "lol", "🎉🎉", "...", "👍", "oh dear"]);
}

#[test]
fn english_that_states_nothing_is_left_to_the_score() {
    states_nothing(&[
        "what's the capital of Peru",
        "How long does rice keep?",
        "is there a word for that in french",
        "write a poem about rain",
        "that was a good film though",
        "the weather is dreadful again",
        "not kidding",
        "not going to lie",
        "use that one",
        "this is fun now",
    ]);
}

#[test]
fn a_phatic_verb_with_an_object_makes_a_statement() {
    states(&[
        "I keep bees.",
        "I see a therapist.",
        "I'm back on insulin.",
        "I know Japanese.",
        "I look after two dogs.",
        "I cannot see.",
        "I'm here on a visa.",
        "I wait for a kidney.",
        "I'm good at chess.",
        "I keep kosher.",
        "I'm doing a PhD in chemistry at ETH.",
        "I keep chickens.",
        "I keep a diary.",
        "I keep fainting.",
        "I see a chiropractor on Mondays.",
        "I see double without glasses.",
        "I see patients all morning.",
        "I know how to weld.",
        "I know sign language.",
        "I know the mayor.",
        "I hear voices at night.",
        "I can't hear.",
        "I can't hear on the left.",
        "I can't see colours.",
        "I look like dad.",
        "I wait tables.",
        "I say grace before meals.",
        "I tell jokes for a living.",
        "I check meters for the council.",
        "I catch colds easily.",
        "I'm good with horses.",
        "I'm great at darts.",
        "I'm fine with needles.",
        "I'm back at university.",
        "I'm back together with Sam.",
        "I'm here for the harvest.",
        "I was lost in the Alps once.",
        "I'm lost without glasses.",
        "I'm ready to retire.",
        "I'm doing chemotherapy.",
        "I'm done with smoking.",
        "I'm confused by numbers.",
        "I never say no to cake.",
        "I always ask for oat milk.",
        "I try to fast on Fridays.",
        "I talk in sleep.",
        "I talk to plants.",
        "I chat in Esperanto.",
        "I forget names.",
        "I never forget faces.",
        "I remember the war.",
        "I cry at weddings.",
        "I cried when grandpa died.",
        "I believe in reincarnation.",
        "I hope to adopt.",
        "I hope to be a nurse.",
        "I mean to emigrate.",
        "I bet on horses.",
        "I understand Tagalog.",
        "I don't understand Dutch.",
        "I appreciate jazz.",
        "I was told to avoid gluten.",
        "I asked for a divorce.",
        "I said yes to the Berlin job.",
        "I'd love to see Iceland.",
        "I have to check blood sugar before lunch.",
        "I'll be back in Oslo by spring.",
        "I'm ok with dogs but not with cats.",
        "I thank God for sobriety.",
        "I'm sure about the surgery.",
        "I'm happy to be a grandmother.",
    ]);
}

#[test]
fn a_phatic_verb_alone_states_nothing() {
    do_not_state(&[
        "I see.",
        "I know, right",
        "I'm back",
        "I'm here",
        "let me check",
        "I'm ready",
        "I hear you",
        "I'll wait",
        "I think so too",
        "I guess not",
        "I hope so",
        "I see what you mean",
        "I know what you mean",
        "I know the feeling",
        "I'm so glad to hear that",
        "I'm sorry to hear that",
        "I'm sure it is",
        "I'm sure you will",
        "I'm good, thanks",
        "I'm fine, how about you?",
        "I'm doing well",
        "I'm doing great today",
        "I bet!",
        "I can imagine",
        "I totally get it",
        "I'm happy for you",
        "I'm excited to hear more about it",
        "I'm just kidding",
        "I'll keep that in mind",
        "I'll check it out",
        "I'll try that",
        "I'll let you know",
        "I'll talk to you later",
        "I'll be right back",
        "I'd love to hear more about that",
        "I'll have a look",
        "I couldn't agree more",
        "I can see why",
        "I don't know what to say",
        "I'm a bit lost now",
        "I said that already",
        "I'd love to see that sometime",
        "I'll take a look at it tomorrow",
        "I wish you luck",
        "I was wondering the same thing",
        "I know that one",
        "I look forward to it",
    ]);
}

#[test]
fn a_phatic_verb_with_an_object_makes_a_statement_in_other_languages_too() {
    states(&[
        "Ich verstehe Polnisch.",
        "ich weiß Bescheid über Uhren",
        "ich glaube an Engel",
        "Ich bin zurück in Bonn.",
        "Entiendo portugués.",
        "Je comprends le breton.",
        "Capisco il sardo.",
        "Entendo japonês.",
        "我知道粤语",
        "我觉得孤独",
    ]);
    do_not_state(&[
        "ich weiß es",
        "ich glaube schon",
        "ich verstehe das",
        "lo entiendo",
        "je comprends bien",
        "lo capisco",
        "eu entendo isso",
    ]);
}

#[test]
fn german_statements_and_small_talk() {
    states(&[
        "Ich habe Asthma.",
        "ich esse kein Fleisch",
        "Meine Schwester wohnt in Kiel",
        "keine Zwiebeln bitte, die vertrag ich nicht",
        "Allergisch gegen Nüsse",
        "Wir ziehen im Mai um",
        "Unser Budget liegt bei 20.000 Euro",
        "Der Abgabetermin ist am Freitag",
        "nenn mich Max",
        "verheiratet, zwei Kinder",
        "Mein Hund heißt Bruno.",
        "arbeite seit März bei der Bahn",
        "Anna ist meine Tante",
        "Darf mein dreijähriger Sohn Honig essen?",
        "der Server läuft mit Debian 12",
        "ich bin Linkshänderin",
    ]);
    is_small_talk(
        SmallTalk::Greeting,
        &["Hallo!", "guten Morgen", "Moin moin", "Tschüss, bis morgen", "Hallo Lisa", "gute Nacht"],
    );
    is_small_talk(SmallTalk::Thanks, &["Danke!", "vielen Dank", "danke dir, super", "dankeschön"]);
    is_small_talk(
        SmallTalk::Acknowledgement,
        &["ja klar", "ok, alles klar", "stimmt", "genau", "weiß nicht", "na gut", "verstehe"],
    );
    states_nothing(&["Wie lange kocht ein Ei?", "Was heißt das auf Englisch?"]);
}

#[test]
fn spanish_statements_and_small_talk() {
    states(&[
        "Tengo asma.",
        "soy celíaca",
        "Vivo en Sevilla",
        "mi hermana trabaja en un banco",
        "no como carne",
        "sin cebolla, me sienta mal",
        "alérgico a los frutos secos",
        "Nuestro presupuesto es de 20.000 euros",
        "La entrega es el viernes",
        "llámame Paco",
        "Nací en 1987",
        "casada y con dos hijos",
        "mi perro se llama Toby",
        "Ana es mi tía",
        "¿Puede mi hijo de tres años comer miel?",
        "el servidor usa Debian 12",
    ]);
    is_small_talk(
        SmallTalk::Greeting,
        &["¡Hola!", "buenos días", "buenas noches, hasta mañana", "hola, ¿qué tal?", "Hola Marta"],
    );
    is_small_talk(SmallTalk::Thanks, &["gracias", "¡Muchas gracias!", "mil gracias, eres un sol"]);
    is_small_talk(
        SmallTalk::Acknowledgement,
        &["vale", "sí, claro", "de acuerdo", "no sé", "ya veo", "bueno, pues nada"],
    );
    states_nothing(&["¿Cómo se dice eso en inglés?", "¿Qué hora es?"]);
}

#[test]
fn french_statements_and_small_talk() {
    states(&[
        "J'ai de l'asthme.",
        "je ne mange pas de viande",
        "J'habite à Nantes",
        "ma sœur travaille à la mairie",
        "pas d'oignons, je les digère mal",
        "allergique aux noix",
        "Notre budget est de 20 000 euros",
        "La réunion est vendredi prochain",
        "appelle-moi Max",
        "Je suis né en 1979",
        "mariée, deux enfants",
        "mon chien s'appelle Rex",
        "Anne est ma tante",
        "Est-ce que mon fils de trois ans peut manger du miel ?",
        "le serveur tourne sous Debian 12",
    ]);
    is_small_talk(
        SmallTalk::Greeting,
        &["Bonjour !", "salut, ça va ?", "bonne nuit", "Coucou Léa", "à demain"],
    );
    is_small_talk(SmallTalk::Thanks, &["merci", "Merci beaucoup !", "super merci"]);
    is_small_talk(
        SmallTalk::Acknowledgement,
        &["d'accord", "oui oui", "ok ça marche", "je ne sais pas", "ah bon", "c'est noté"],
    );
    states_nothing(&["Comment dit-on cela en anglais ?", "quelle heure est-il ?"]);
}

#[test]
fn portuguese_statements_and_small_talk() {
    states(&[
        "Tenho asma.",
        "sou celíaca",
        "Moro em Recife",
        "minha irmã trabalha num banco",
        "não como carne",
        "sem cebola, me faz mal",
        "alérgico a amendoim",
        "Nosso orçamento é de 20 mil",
        "A entrega é na sexta-feira",
        "me chama de Zé",
        "Nasci em 1990",
        "casada, dois filhos",
        "meu cachorro se chama Rex",
        "Ana é minha tia",
        "Meu filho de três anos pode comer mel?",
        "o servidor roda Debian 12",
    ]);
    is_small_talk(
        SmallTalk::Greeting,
        &["Oi!", "bom dia", "boa noite, até amanhã", "olá, tudo bem?", "Oi Bruna"],
    );
    is_small_talk(SmallTalk::Thanks, &["obrigada", "Muito obrigado!", "valeu, demais"]);
    is_small_talk(
        SmallTalk::Acknowledgement,
        &["tá bom", "sim, claro", "entendi", "não sei", "pois é", "então beleza"],
    );
    states_nothing(&["Como se diz isso em inglês?", "Que horas são?"]);
}

#[test]
fn italian_statements_and_small_talk() {
    states(&[
        "Ho l'asma.",
        "sono celiaca",
        "Abito a Torino",
        "mia sorella lavora in banca",
        "non mangio carne",
        "senza cipolla, mi fa male",
        "allergico alle noci",
        "Il nostro budget è di 20 mila euro",
        "La consegna è venerdì prossimo",
        "chiamami Beppe",
        "Sono nato nel 1985",
        "sposata, due figli",
        "il mio cane si chiama Argo",
        "Anna è mia zia",
        "Mio figlio di tre anni può mangiare il miele?",
        "il server usa Debian 12",
    ]);
    is_small_talk(
        SmallTalk::Greeting,
        &["Ciao!", "buongiorno", "buonanotte, a domani", "ciao, come stai?", "Ciao Giulia"],
    );
    is_small_talk(SmallTalk::Thanks, &["grazie", "Grazie mille!", "ti ringrazio, perfetto"]);
    is_small_talk(
        SmallTalk::Acknowledgement,
        &["va bene", "sì, certo", "ho capito", "non lo so", "d'accordo", "ah ecco"],
    );
    states_nothing(&["Come si dice in inglese?", "Che ore sono?"]);
}

#[test]
fn chinese_statements_and_small_talk() {
    states(&[
        "我有哮喘。",
        "我不吃肉",
        "我住在杭州",
        "我姐姐在银行上班",
        "不要放洋葱，吃了会难受",
        "对花生过敏",
        "我们的预算是两万",
        "截止日期是星期五",
        "叫我小王",
        "我1987年出生",
        "已婚，两个孩子",
        "我家的狗叫豆豆",
        "安娜是我阿姨",
        "我三岁的儿子能吃蜂蜜吗？",
        "服务器用的是Debian 12",
    ]);
    is_small_talk(SmallTalk::Greeting, &["你好", "早上好！", "晚安，明天见", "在吗？"]);
    is_small_talk(SmallTalk::Thanks, &["谢谢", "非常感谢！", "好的，谢谢你"]);
    is_small_talk(
        SmallTalk::Acknowledgement,
        &["好的", "嗯嗯，知道了", "没问题", "不知道", "是的", "对对对"],
    );
    states_nothing(&["这个英文怎么说？", "现在几点？"]);
}

#[test]
fn japanese_statements_and_small_talk() {
    states(&[
        "喘息があります。",
        "肉は食べられない",
        "横浜に住んでいます",
        "姉は銀行で働いています",
        "玉ねぎは苦手です",
        "ナッツアレルギーです",
        "予算は20万円です",
        "締め切りは金曜日です",
        "マックスと呼んでください",
        "1987年生まれです",
        "独身です",
        "犬を飼っています",
        "アンナは私の叔母です",
        "うちの3歳の息子、はちみつ食べていい？",
        "サーバーはDebian 12です",
    ]);
    is_small_talk(
        SmallTalk::Greeting,
        &["こんにちは", "おはようございます！", "おやすみなさい", "お疲れ様です"],
    );
    is_small_talk(SmallTalk::Thanks, &["ありがとう", "ありがとうございます！", "助かりました"]);
    is_small_talk(
        SmallTalk::Acknowledgement,
        &["はい", "了解です", "なるほどね", "そうですね", "わからない", "大丈夫です"],
    );
    states_nothing(&["これは英語で何？", "今何時ですか？"]);
}

#[test]
fn a_letter_drawn_out_makes_small_talk_no_statement() {
    is_small_talk(SmallTalk::Greeting, &["holaa", "ciaoo!", "boa noitee"]);
    is_small_talk(SmallTalk::Thanks, &["dankee", "graciass", "grazieee mille", "obrigadaa"]);
    is_small_talk(SmallTalk::Acknowledgement, &["okk", "jaa genau"]);
}

#[test]
fn more_words_after_a_yes_or_no_make_a_statement() {
    states(&[
        "sì, sono medico",
        "はい、医者です",
        "sí, médica",
        "oui, prof de maths",
        "どうも、鈴木です",
        "gracias, ya no fumo",
    ]);
    is_small_talk(SmallTalk::Greeting, &["どうも"]);
    is_small_talk(SmallTalk::Acknowledgement, &["sì, certo", "はい、わかりました", "sí claro"]);
}

#[test]
fn a_text_of_an_uncovered_language_is_kept_unless_it_is_known_small_talk() {
    states(&[
        "Mam dwa koty",
        "Mieszkam w Gdańsku",
        "Я живу в Казани",
        "у меня диабет",
        "أعيش في لشبونة",
        "ฉันเลี้ยงแมวสองตัว",
        "나는 서울에 살아요",
        "Bor i Bergen nå",
    ]);
    is_small_talk(SmallTalk::Acknowledgement, &["ok ok", "Okay!"]);
}

#[test]
fn a_long_text_is_no_small_talk() {
    assert_eq!(speech(&"thanks ".repeat(40)).small_talk, None);
}

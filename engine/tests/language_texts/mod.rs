//! Short texts as people say or write them, with their topics.

/// The default categories.
pub(crate) const TOPICS: [&str; 8] =
    ["news", "sports", "music", "transport", "cooking", "technology", "weather", "health"];

/// Topic and text, five of each.
pub(crate) const TEXTS: [(&str, &str); 40] = [
    (
        "news",
        "The prime minister resigned this morning after the vote in parliament went against her.",
    ),
    (
        "news",
        "Police are still looking for two men who robbed a jewellery store downtown last night.",
    ),
    (
        "news",
        "Officials say the ceasefire talks between the two countries will go on until Friday.",
    ),
    (
        "news",
        "Our correspondent reports that thousands of people are protesting outside the court today.",
    ),
    ("news", "The mayor announced a public inquiry into the collapse of the old town hall."),
    ("sports", "And she takes the shot from outside the box, it's in the net, two nil!"),
    ("sports", "He broke the world record in the hundred metres by three hundredths of a second."),
    ("sports", "The coach said his defenders were tired after playing three matches in a week."),
    ("sports", "Match point now, she tosses the ball and serves an ace down the middle."),
    (
        "sports",
        "They lost the final in overtime, but the goalkeeper was the best player on the pitch.",
    ),
    ("music", "This next song is from our new album and it starts with a long guitar solo."),
    ("music", "The orchestra played Beethoven's fifth symphony to a full concert hall."),
    ("music", "Listen to how the drums come in just before the chorus, it gives me goosebumps."),
    ("music", "She learned to play the piano when she was four and writes all her own tunes."),
    ("music", "The band will be touring with a new singer and a brass section this summer."),
    (
        "transport",
        "The train to Manchester is delayed by about twenty minutes due to a signal failure.",
    ),
    (
        "transport",
        "Passengers for flight two one four please go to gate seven, boarding has begun.",
    ),
    (
        "transport",
        "There's a five mile tailback on the motorway after a lorry overturned near junction nine.",
    ),
    (
        "transport",
        "Mind the gap please, this bus terminates at the next stop, change here for the tram.",
    ),
    ("transport", "The ferry leaves the harbour at noon and takes cars, lorries and bicycles."),
    ("cooking", "Now chop the onions finely and fry them in butter until they are golden."),
    ("cooking", "Leave the dough to rise for an hour, then bake it at two hundred degrees."),
    ("cooking", "I add a pinch of salt and some garlic to the sauce and let it simmer."),
    ("cooking", "You want to whisk the eggs with the sugar before you fold in the flour."),
    ("cooking", "Grill the salmon for four minutes on each side and serve it with lemon and rice."),
    ("technology", "The new phone has a faster chip and the battery lasts for two days."),
    (
        "technology",
        "So I updated the software, and now my laptop won't connect to the network any more.",
    ),
    (
        "technology",
        "Engineers showed a robot that can fold laundry using two cameras and a neural network.",
    ),
    ("technology", "The company will release the source code of its operating system next month."),
    ("technology", "You can see here how the program compiles, and then we push it to the server."),
    (
        "weather",
        "Tomorrow will be cloudy with showers in the north and sunny spells along the coast.",
    ),
    (
        "weather",
        "A severe storm warning is in place tonight with gusts of up to ninety miles an hour.",
    ),
    ("weather", "It's minus twelve out here, the snow is up to my knees and it's still falling."),
    (
        "weather",
        "Temperatures will climb to thirty five degrees by the weekend, so it stays hot and dry.",
    ),
    ("weather", "Thick fog this morning, clearing slowly, then a light breeze from the west."),
    (
        "health",
        "The doctor told me to rest, drink plenty of water and take the tablets twice a day.",
    ),
    ("health", "Symptoms include fever, a sore throat and a headache that lasts for several days."),
    ("health", "The surgeon explained that the operation on her knee went well."),
    ("health", "Getting eight hours of sleep lowers your blood pressure and helps your heart."),
    ("health", "Nurses at the hospital are vaccinating children against measles this week."),
];

/// Flags with their meanings, as they stand in a configuration.
pub(crate) const FLAGS: [(&str, &str); 5] = [
    ("violence", "someone is attacked or threatened"),
    ("emergency", "there is a fire, an accident or someone in danger"),
    ("advertising", "someone wants to sell a product"),
    ("self_harm", "someone wants to hurt or kill himself"),
    ("drugs", "someone takes or sells illegal drugs"),
];

/// Flag that should be raised, and text. The texts of [`TEXTS`] should raise none but those listed after.
pub(crate) const FLAGGED: [(&str, &str); 20] = [
    ("violence", "He pulled out a knife and said he would kill me if I moved."),
    ("violence", "Two of them were kicking and punching a man who lay on the ground."),
    ("violence", "The masked gunman opened fire on the crowd and hit several people."),
    ("violence", "I'm going to beat you up after school, just you wait."),
    ("emergency", "The whole kitchen is burning, everybody get out of the building now!"),
    ("emergency", "There's been a car crash and the driver is trapped, please send an ambulance."),
    ("emergency", "Help, my son fell into the river and he can't swim!"),
    ("emergency", "Smoke is pouring out of the tunnel and people are still inside the train."),
    ("advertising", "Order today and get fifty percent off our amazing new vacuum cleaner."),
    ("advertising", "Use my code at checkout for a free trial, link in the description."),
    ("advertising", "Only this week, buy two mattresses for the price of one, call now!"),
    ("advertising", "This cream made my skin so soft, you can get it in our shop for ten dollars."),
    ("self_harm", "I don't want to live any more, I have the pills here and I'll take them all."),
    ("self_harm", "Sometimes I cut my arms because I hate myself so much."),
    ("self_harm", "He wrote a goodbye letter and wanted to jump off the bridge."),
    ("self_harm", "I think about ending my life every single day."),
    ("drugs", "He sells cocaine and heroin behind the station."),
    ("drugs", "We smoked weed all night and then somebody passed around ecstasy."),
    ("drugs", "They found two kilos of crystal meth in the boot of his car."),
    ("drugs", "I took some acid at the festival and saw colours everywhere."),
];

/// Texts of [`TEXTS`] that may raise a flag with good reason.
pub(crate) const MAY_BE_FLAGGED: [(&str, &str); 3] = [
    ("violence", "robbed a jewellery store"),
    ("emergency", "lorry overturned"),
    ("emergency", "severe storm warning"),
];

package comprehend_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/internal/runtest"
)

// said is a sentence and the lines of one kind that it must give, in order; none for a sentence
// that must give none.
type said struct {
	text string
	want []string
}

func yes(text string, want ...string) said { return said{text, want} }

// same is a sentence that is its own memory.
func same(text string) said { return said{text, []string{text}} }

func no(texts ...string) []said {
	var out []said
	for _, text := range texts {
		out = append(out, said{text, nil})
	}
	return out
}

// check extracts from each sentence, said by author on Monday 12 May 2025, and compares the lines
// of one kind.
func check(t *testing.T, kind, author string, sentences ...said) {
	t.Helper()
	checkLines(t, kind, func(text string) (lines []string) {
		for _, m := range extract(text, author) {
			if m.Kind == kind {
				lines = append(lines, m.Content)
			}
		}
		return lines
	}, sentences...)
}

func checkLines(t *testing.T, kind string, read func(text string) []string, sentences ...said) {
	t.Helper()
	for _, s := range sentences {
		got := read(s.text)
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("%s in %q (-want +got):\n%s", kind, s.text, diff)
		}
	}
}

func TestObservation(t *testing.T) {
	check(t, memory.Observation, "Ana", append(no(
		"Hey Bo! Good to see you!", "Thanks for the help yesterday!", "Did you finish the report?", "How was your weekend?", "I love painting.", "I was so happy.",
		"I didn't go to Rome.", "I would have gone to Rome.", "I almost bought a car.", "If I had bought the car, I would drive to work.", "I wish I had visited Rome.",
		"I should have called the bank.", "I did it!", "It happened again.", "She went home.", "They moved the launch.", "I got the idea from a book.", "I got to go.",
		"We will move the launch.", "I'm going to visit Rome.", "You told me about the concert.", "That made me think.", "I thought about the launch.", "I have got a dog.",
		"I felt great at the concert.", "Maybe Bo moved the launch.", "Bo never visited Rome.", "I came across this one.", "Let's meet on Friday.", "Great job!", "Wow, that's amazing!", "The vet said that she needs rest.", "Me and my neighbour ran a class.", "On Mon, May 5, 2025 at 9:12 AM Bo Berg wrote:",
		"Add failed calls to the queue.", "Code reviewed and refactored."),
		yes("Last weekend my partner and I traveled to Rome.",
			"Last weekend (10 May 2025 to 11 May 2025) Ana's partner and Ana traveled to Rome"),
		yes("Last week, I decided to run for office again.",
			"Last week (5 May 2025 to 11 May 2025), Ana decided to run for office again"),
		yes("In the meantime, I donated my old car.", "Ana donated their old car"),
		yes("Yeah, and I bought a bike.", "Ana bought a bike"),
		yes("Just last week, I found a great concert.",
			"Just last week (5 May 2025 to 11 May 2025), Ana found a great concert"),
		yes("I quit my job at Initech.", "Ana quit their job at Initech"),
		yes("I went to a support group yesterday and it was so powerful.",
			"Ana went to a support group yesterday (11 May 2025)"),
		yes("Yesterday I took the kids to the museum!", "Yesterday (11 May 2025) Ana took the kids to the museum"),
		yes("Bo moved the launch to 3 June 2025.", "Bo moved the launch to 3 June 2025"),
		yes("The launch was moved to 3 June 2025.", "The launch was moved to 3 June 2025"),
		yes("Hey Bo, I just finished my first marathon!", "Ana just finished their first marathon"),
		yes("My daughter graduated last week.", "Ana's daughter graduated last week (5 May 2025 to 11 May 2025)"),
		yes("We hiked the Grand Canyon last summer.", "Ana and others hiked the Grand Canyon last summer"),
		yes("I've already booked the flights.", "Ana has already booked the flights"),
		yes("The server crashed.", "The server crashed"),
		yes("Bo resigned yesterday.", "Bo resigned yesterday (11 May 2025)"),
		yes("Bo and Cy shipped the new billing page on Friday.",
			"Bo and Cy shipped the new billing page on Friday (9 May 2025)"),
		yes("My colleagues and I went to Rome.", "Ana's colleagues and Ana went to Rome"),
		yes("I got promoted!", "Ana got promoted"),
		yes("I bought a new bike, but I haven't tried it.", "Ana bought a new bike"),
		yes("So, I finally signed up for a pottery class.", "Ana finally signed up for a pottery class"),
		yes("I had a picnic with some friends last Saturday.",
			"Ana had a picnic with some friends last Saturday (10 May 2025)"),
		yes("The payments service was deployed on 2 May 2025.", "The payments service was deployed on 2 May 2025"),
		yes("My colleague Rob invited me to a yoga class.", "Ana's colleague Rob invited Ana to a yoga class"),
		yes("I ran into Bo at the station and we had lunch together.", "Ana ran into Bo at the station",
			"Ana and others had lunch together"),
		yes("Bo said that the launch slips.", "Bo said that the launch slips"),
	)...)
	check(t, memory.Observation, "", same("I went to Rome"), same("The board approved the budget"),
		yes("We adopted a dog yesterday.", "We adopted a dog yesterday (11 May 2025)"))
}

func TestClaim(t *testing.T) {
	check(t, memory.Claim, "Ana", append(no(
		"Hi!", "Do you like tea?", "I'd love to see that!", "I love that!", "I love it so much.", "I love your painting!", "I like how it looks.", "She loves tea.", "I love this song.",
		"I want to thank everybody.", "I hope to see you soon.", "It is a nice editor.", "That's my favourite!", "What's your favourite editor?", "My point is that nobody knows.",
		"My heart is racing.", "I would work at Acme.", "If I lived in Berlin, I would cycle.", "This is a big step.", "I loved the concert.", "You live in Berlin.", "Things are good.",
		"We'll see.", "I will do it tomorrow.", "I'm going tomorrow.", "It will use Kafka.", "I'm leaving it for now.",
		"I used to like it.", "I'm looking forward to it.", "I'm looking for some advice.", "I'm looking for it.", "I used to do that.",
		"Painting is a great way to relax.", "I have to go.", "I have a feeling.", "I think Bo likes tea.", "I love to!", "Is Ana's favourite editor Helix?"),
		yes("I love tea.", "Ana loves tea"),
		yes("Bo's favourite editor is Helix.", "Bo's favourite editor is Helix"),
		yes("My favorite color is green!", "Ana's favorite color is green"),
		yes("Helix is my favourite editor.", "Helix is Ana's favourite editor"),
		yes("I live in Berlin and work at Acme.", "Ana lives in Berlin", "Ana works at Acme"),
		yes("Bo works as a nurse.", "Bo works as a nurse"),
		yes("I'm a software engineer.", "Ana is a software engineer"),
		yes("The launch date is 3 June 2025.", "The launch date is 3 June 2025"),
		yes("The launch is on 3 June 2025.", "The launch is on 3 June 2025"),
		yes("The demo is scheduled for next Tuesday.", "The demo is scheduled for next Tuesday (13 May 2025)"),
		yes("I prefer Helix over Vim.", "Ana prefers Helix over Vim"),
		yes("Bo prefers Zed for Go.", "Bo prefers Zed for Go"),
		yes("I don't like coffee.", "Ana doesn't like coffee"),
		yes("I can't stand loud music.", "Ana can't stand loud music"),
		yes("I'm allergic to peanuts.", "Ana is allergic to peanuts"),
		yes("I've been practising yoga for two years.", "Ana has been practising yoga for two years"),
		yes("I have two kids.", "Ana has two kids"),
		yes("I have a dog named Rex.", "Ana has a dog named Rex"),
		yes("I'm learning the piano.", "Ana is learning the piano"),
		yes("I plan to visit Rome in two weeks.", "Ana plans to visit Rome in two weeks (26 May 2025)"),
		yes("I usually take the train to work.", "Ana usually takes the train to work"),
		yes("My manager is Cy.", "Ana's manager is Cy"),
		yes("The capital of France is Paris.", "The capital of France is Paris"),
		yes("Helix is a text editor.", "Helix is a text editor"),
		yes("The payments service uses Postgres.", "The payments service uses Postgres"),
		yes("I'm vegan.", "Ana is vegan"),
		yes("My daughter loves ballet.", "Ana's daughter loves ballet"),
		yes("I'm a big fan of jazz.", "Ana is a big fan of jazz"),
		yes("Bo moved the launch to 3 June 2025.", "The launch is on 3 June 2025"),
		yes("I moved my dentist appointment to Friday.", "Ana's dentist appointment is on 16 May 2025"),
		yes("I play the guitar and love hiking.", "Ana plays the guitar", "Ana loves hiking"),
		yes("I no longer work at Acme.", "Ana no longer works at Acme"),
		yes("Bo is from Sweden.", "Bo is from Sweden"),
		yes("Alice is Bob's manager.", "Alice is Bob's manager"),
		yes("Alice reports to Bob.", "Alice reports to Bob"),
		yes("Our daughter was born on 3 March 2021.", "Ana's daughter was born on 3 March 2021"),
		yes("I'm moving to Oslo next month.", "Ana is moving to Oslo next month (June 2025)"),
		yes("Priya will take over the rota from Marcus next Monday.",
			"Priya will take over the rota from Marcus next Monday (19 May 2025)"),
		yes("Decision: we will use Kafka for the event bus.", "Ana and others will use Kafka for the event bus"),
		yes("Our staging database runs on Postgres 15.", "Ana's staging database runs on Postgres 15"),
		yes("I have an appointment with the dentist on Friday.",
			"Ana has an appointment with the dentist on Friday (16 May 2025)"),
		yes("My parents live in Ohio.", "Ana's parents live in Ohio"),
		yes("My blood type is O negative.", "Ana's blood type is O negative"),
		yes("I go to the gym every Tuesday.", "Ana goes to the gym every Tuesday"),
		yes("I used to play football.", "Ana used to play football"),
		yes("I'm looking for a new flat.", "Ana is looking for a new flat"),
		yes("I hope to build my own family and put a roof over kids.",
			"Ana hopes to build their own family and put a roof over kids"),
		yes("I'm 34 years old.", "Ana is 34 years old"),
	)...)
	check(t, memory.Claim, "", same("I love tea"), same("Ana lives in Lisbon"), same("We use Postgres for storage"))
}

func TestRule(t *testing.T) {
	check(t, memory.Rule, "Ana", append(no(
		"Never mind.", "Never heard of it.", "Don't worry!", "Don't forget the milk.", "Always a pleasure!", "I never deploy on Fridays.", "I always run the tests.", "Never thought of that.",
		"Do you always deploy on Fridays?", "Don't do it.", "Don't go today.", "Always happy to help.", "You never know.", "Run the tests.", "Please send me the report.", "We must have missed it.",
		"You must be tired!", "I must say it looks good.", "It must be hard.", "Never been there.", "Take care!", "Keep it up!", "Exercise and music are always great.", "Never give up!", "Always remember you are loved.",
		"If you have time, call me.", "When I arrive, call Bo.", "Only three left.", "Only Bo knows.", "Do not touch it.", "She must always win.", "The bus never came."),
		yes("Never deploy on Fridays.", "Never deploy on Fridays"),
		yes("Always run the tests before merging.", "Always run the tests before merging"),
		yes("Do not push to main without a review.", "Do not push to main without a review"),
		yes("Don't use tabs in Go files.", "Don't use tabs in Go files"),
		yes("From now on, answer in French.", "From now on, answer in French"),
		yes("Please always call me Annie.", "Please always call Ana Annie"),
		yes("All pull requests must be reviewed by two people.", "All pull requests must be reviewed by two people"),
		yes("Secrets must never be committed.", "Secrets must never be committed"),
		yes("Nobody may deploy on Fridays.", "Nobody may deploy on Fridays"),
		yes("Deployments are not allowed on Fridays.", "Deployments are not allowed on Fridays"),
		yes("Rule: never share customer data.", "Never share customer data"),
		yes("Remember: always lock the door.", "Always lock the door"),
		yes("Run the linter before every commit.", "Run the linter before every commit"),
		yes("You must always sign the visitors' book.", "You must always sign the visitors' book"),
		yes("Every release must have a changelog.", "Every release must have a changelog"),
		yes("Whenever you deploy, tell the on-call engineer.", "Whenever you deploy, tell the on-call engineer"),
		yes("Never store passwords in plain text!", "Never store passwords in plain text"),
		yes("Passwords should never be logged.", "Passwords should never be logged"),
		yes("Smoking is forbidden in the office.", "Smoking is forbidden in the office"),
		yes("Please make sure to back up the database before every migration.",
			"Please make sure to back up the database before every migration"),
		yes("No one is allowed to merge without approval.", "No one is allowed to merge without approval"),
		yes("When deploying, always tag the commit.", "When deploying, always tag the commit"),
		yes("Reminder: do not share the staging password.", "Do not share the staging password"),
		yes("Use British spelling in all documents.", "Use British spelling in all documents"),
		yes("Only reply in English.", "Only reply in English"),
		yes("Only admins can delete projects.", "Only admins can delete projects"),
	)...)
}

func TestMembership(t *testing.T) {
	check(t, memory.Membership, "Ana", append(no(
		"I'm on the bus.", "I'm in the kitchen.", "Is Bo on the platform team?", "I love the platform team.", "The team is great.", "I'm not on the platform team.", "Bo was on the platform team.",
		"I would join the platform team.", "Bo left the platform team.", "She is on the platform team.", "I'm part of it.", "I'm on it.", "You're on the platform team.", "I'm in love.", "Bo is in Rome.",
		"I'm in good company.", "We talked to the platform team.", "The team won the match.", "Bo is a lead.", "That book belongs to me.", "I'm the best.", "I'm on my way.", "They joined the team."),
		yes("Bo is on the platform team.", "Bo is on the platform team"),
		yes("I'm on the design team.", "Ana is on the design team"),
		yes("I'm in a book club.", "Ana is in a book club"),
		yes("Bo works in the finance department.", "Bo works in the finance department"),
		yes("Cy is a member of the board.", "Cy is a member of the board"),
		yes("I'm part of the security team.", "Ana is part of the security team"),
		yes("The payments service belongs to the billing group.", "The payments service belongs to the billing group"),
		yes("Bo joined the platform team yesterday.", "Bo is a member of the platform team"),
		yes("I just joined a running club.", "Ana is a member of a running club"),
		yes("Bo leads the platform team.", "Bo leads the platform team"),
		yes("I manage the support team.", "Ana manages the support team"),
		yes("Cy is the tech lead of the payments team.", "Cy is the tech lead of the payments team"),
		yes("Bo is our product owner.", "Bo is Ana's product owner"),
		yes("I'm the captain of the chess club.", "Ana is the captain of the chess club"),
		yes("Cy is the CTO of Acme.", "Cy is the CTO of Acme"),
		yes("The platform team consists of Bo, Cy and Dee.", "Bo is a member of the platform team",
			"Cy is a member of the platform team", "Dee is a member of the platform team"),
		yes("The members of the board are Bo and Cy.", "Bo is a member of the board", "Cy is a member of the board"),
		yes("My brother is on the football team.", "Ana's brother is on the football team"),
		yes("I sing in the church choir.", "Ana sings in the church choir"),
		yes("Bo and Cy are on the hiring committee.", "Bo and Cy are on the hiring committee"),
		yes("We are members of the sailing club.", "Ana and others are members of the sailing club"),
		yes("I'm now part of the fire-fighting brigade.", "Ana is now part of the fire-fighting brigade"),
		yes("Dee is a founding member of Acme.", "Dee is a founding member of Acme"),
	)...)
}

func TestIdentity(t *testing.T) {
	check(t, memory.Identity, "Ana", append(no(
		"What's your name?", "My name is on the list.", "I go by bus.", "Time goes by.", "Call me later!", "Call me when you arrive.", "Bo calls me every day.", "My email is broken.", "My phone is dead.",
		"Her name is Bo.", "I know Bo as a friend.", "It's also known to be slow.", "The email was sent.", "Send it to bo@example.com.", "Is Bo also known as Bobby?", "My number is wrong.", "My username is not working.",
		"The address is hard to find.", "You can call me.", "I'm called to the office.", "Everyone calls me lazy.", "My alias is gone.", "She goes by Bobby."),
		yes("Ana Ruiz goes by aruiz.", "Ana Ruiz goes by aruiz"),
		yes("I go by Annie.", "Ana goes by Annie"),
		yes("My name is Ana Ruiz.", "Ana's name is Ana Ruiz"),
		yes("Bo is also known as Bobby.", "Bo is also known as Bobby"),
		yes("Bo's email is bo@example.com.", "Bo's email is bo@example.com"),
		yes("My GitHub handle is aruiz.", "Ana's GitHub handle is aruiz"),
		yes("My phone number is 030 123456.", "Ana's phone number is 030 123456"),
		yes("Everyone calls me Annie.", "Ana goes by Annie"),
		yes("Please call me Annie.", "Ana goes by Annie"),
		yes("Bo Berg (aka bobby99) wrote the parser.", "Bo Berg is also known as bobby99"),
		yes("You can reach me at ana@example.com.", "Ana's email is ana@example.com"),
		yes("Bo Berg <bo@example.com> will help.", "Bo Berg's email is bo@example.com"),
		yes("Bo's nickname is Speedy.", "Bo's nickname is Speedy"),
		yes("My pronouns are she/her.", "Ana's pronouns are she/her"),
		yes("The service is called Hermes.", "The service is called Hermes"),
		yes("Bo's Slack handle is @bobby.", "Bo's Slack handle is @bobby"),
		yes("My dog's name is Rex.", "Ana's dog's name is Rex"),
		yes("Lucy's team is called the Falcons.", "Lucy's team is called the Falcons"),
		yes("PG is short for Postgres.", "PG is short for Postgres"),
		yes("The name of the ship is Aurora.", "The name of the ship is Aurora"),
		yes("My username is aruiz_92.", "Ana's username is aruiz_92"),
	)...)
}

// The names that are read, also those that other memories hold.
func TestMentions(t *testing.T) {
	by := func(author string) func(text string) []string {
		return func(text string) []string {
			return comprehend.Mentions(comprehend.Input{Content: text, Author: author, OccurredAt: monday})
		}
	}
	checkLines(t, memory.Mention, by("Ana"), append(no(
		"Hey Bo! How are you?", "Thanks, Bo!", "Bo, can you help?", "Wow, Bo, that's great!", "I love tea.", "See you on Friday.", "We met in June.", "I'm learning French.", "OK, LOL!", "That's Awesome News For Everybody Here.",
		"Today was great. Painting helps. Things changed.", "I like Italian food.", "My TV is broken.", "Ana loves tea.", "Merry Christmas!", "How about Monday?", "Mom called.", "I KNOW THAT VERY WELL.", "Good morning!",
		"What a day it was!", "Ich liebe den Hund und die Katze von Frau Weber.", "I think I am late."),
		yes("I use Helix for Go.", "Ana mentions Helix", "Ana mentions Go"),
		yes("I talked to Bo Berg about Acme.", "Ana mentions Bo Berg", "Ana mentions Acme"),
		yes("We visited Rome, Paris, and Milan.", "Ana mentions Rome", "Ana mentions Paris", "Ana mentions Milan"),
		yes("The Bank of America called.", "Ana mentions Bank of America"),
		yes("Bo moved the launch to 3 June 2025.", "Ana mentions Bo"),
		yes("Bo Berg will come.", "Ana mentions Bo Berg"),
		yes("I met Bo. Bo is nice.", "Ana mentions Bo"),
		yes("I flew to Rio de Janeiro.", "Ana mentions Rio de Janeiro"),
		yes("Have you heard of Apollo 11?", "Ana mentions Apollo 11"),
		yes("My sister, Dee, lives in Lisbon.", "Ana mentions Dee", "Ana mentions Lisbon"),
		yes("I read a book by Neal Stephenson.", "Ana mentions Neal Stephenson"),
		yes("I love the East Coast.", "Ana mentions East Coast"),
	)...)
	checkLines(t, memory.Mention, by(""), yes("I use Helix.", "Helix is mentioned"))
}

// A mention is derived of a name that no other memory of the text holds, wherever that stands, and of at most two.
func TestMention(t *testing.T) {
	check(t, memory.Mention, "Ana", append(no(
		"I use Helix.", "Bo moved the launch to 3 June 2025.", "I flew to Rio de Janeiro.",
		"Have you heard of Helix? I use Helix.", "Nobody has heard of helix. I use Helix."),
		yes("Have you heard of Apollo 11?", "Ana mentions Apollo 11"),
		yes("Have you heard of Apollo 11? And of Soyuz? Or Vostok?", "Ana mentions Apollo 11", "Ana mentions Soyuz"),
		yes("Have you heard of Heli? I use Helix.", "Ana mentions Heli"),
		yes("I use Helix. Have you heard of Soyuz?", "Ana mentions Soyuz"),
	)...)
}

func TestSuperseding(t *testing.T) {
	key := func(text, author string) [2]string {
		for _, m := range extract(text, author) {
			if m.Kind == memory.Claim {
				return [2]string{m.Subject, m.Attribute}
			}
		}
		t.Errorf("no claim in %q", text)
		return [2]string{text}
	}
	for _, group := range [][]string{
		{"Ana's favourite editor is Helix", "Ana's favourite editor is now Zed", "My favorite editor is Vim.", "Emacs is my favourite editor.", "Ana’s favourite editor is Kakoune!"},
		{"I live in Berlin.", "Ana lives in Lisbon now", "Ana is based in Porto", "I no longer live in Berlin."},
		{"I work at Acme.", "Ana works for Globex", "I don't work at Acme anymore."},
		{"I work as a nurse.", "Ana is a teacher."},
		{"The launch date is 3 June 2025.", "The launch is on 4 June 2025.", "Bo moved the launch to 5 June 2025.", "The launch was postponed to next month.", "The date of the launch is 7 June 2025."},
		{"I love tea.", "Ana no longer likes tea.", "I hate tea."},
		{"I prefer Helix over Vim.", "I now prefer Vim over Helix."},
		{"I prefer Helix for Go.", "Ana prefers Zed for Go."},
		{"I have two kids.", "Ana has three kids"},
		{"I'm vegetarian.", "I'm vegan."},
		{"I'm single.", "I'm married."},
		{"My manager is Bo.", "Ana's manager is Cy."},
		{"I love to paint.", "I don't like painting."},
	} {
		for _, text := range group[1:] {
			if a, b := key(group[0], "Ana"), key(text, "Ana"); a != b {
				t.Errorf("%q is about %q, %q about %q", group[0], a, text, b)
			}
		}
	}
	var keys [][2]string
	for _, text := range []string{
		"I love tea.", "I love coffee.", "I live in Berlin.", "I work at Acme.", "I prefer Helix over Vim.", "I have a dog.", "I have a cat.", "My favourite editor is Helix.", "My favourite colour is green.",
		"Bo loves tea.", "My daughter loves tea.", "The launch is on 3 June 2025.", "The demo is on 3 June 2025.", "I play the guitar.", "I play chess.",
	} {
		k := key(text, "Ana")
		if slices.Contains(keys, k) {
			t.Errorf("%q is about %q, as a sentence before it", text, k)
		}
		keys = append(keys, k)
	}
}

// labelled is one text of testdata/labelled.txt.
type labelled struct {
	in     comprehend.Input
	labels []label
}

// label is one memory that a careful reader accepts of a text.
type label struct {
	kind     string
	optional bool
	patterns []string // of the line; for a mention of the name, for a date of the quoted expression
	resolved []string // what a date resolves to
	key      string   // of a claim
}

func readLabelled(t *testing.T) []labelled {
	t.Helper()
	text, err := os.ReadFile("testdata/labelled.txt")
	runtest.Must(t, err)
	in := comprehend.Input{DataPoint: dataPoint, Revision: 1}
	var all []labelled
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		field, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "> "):
			in.Content = strings.ReplaceAll(line[2:], `\n`, "\n")
			all = append(all, labelled{in: in})
		case strings.HasPrefix(line, "  "):
			last := &all[len(all)-1]
			last.labels = append(last.labels, readLabel(t, field, value))
		case field == "author":
			in.Author = value
		case field == "said":
			if in.OccurredAt, err = time.Parse(time.RFC3339, value); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("%q", line)
		}
	}
	return all
}

func readLabel(t *testing.T, kind, value string) label {
	t.Helper()
	var l label
	l.kind, l.optional = strings.CutPrefix(kind, "?")
	if !l.optional {
		l.kind = kind
	}
	known := false
	for _, k := range kinds {
		known = known || k == l.kind
	}
	if !known {
		t.Fatalf("%q is no kind", kind)
	}
	if open := strings.LastIndex(value, " {"); open > 0 {
		value, l.key = value[:open], strings.Trim(value[open:], " {}")
	}
	if l.kind == memory.TemporalAnchor {
		words, days, _ := strings.Cut(value, " = ")
		l.patterns, l.resolved = []string{words}, strings.Split(days, " | ")
	} else {
		l.patterns = strings.Split(value, " | ")
	}
	return l
}

// brackets hold a resolved date: the anchors of the text show whether it is right.
var brackets = regexp.MustCompile(` \([^()]*\d{4}[^()]*\)`)

// accepts reports whether a memory is what the label asks for.
func (l label) accepts(m memory.Memory) bool {
	if m.Kind != l.kind {
		return false
	}
	if l.kind == memory.TemporalAnchor {
		for _, span := range l.resolved {
			if strings.Contains(strings.ToLower(m.Content), strings.ToLower(l.patterns[0])) && resolves(m, span) {
				return true
			}
		}
		return false
	}
	line := strings.ToLower(strings.TrimRight(brackets.ReplaceAllString(m.Content, ""), "."))
	line = plainGenitive(line)
	if l.kind == memory.Mention {
		_, name, _ := strings.Cut(line, " mentions ")
		line = name
	}
	for _, p := range l.patterns {
		if fits(plainGenitive(strings.ToLower(p)), line) {
			return true
		}
	}
	return false
}

// plainGenitive makes "Jonas' dog" and "Jonas's dog" one.
func plainGenitive(line string) string { return strings.ReplaceAll(line, "s' ", "s's ") }

// fits matches a line with a pattern in which "*" is any text.
func fits(pattern, line string) bool {
	parts := strings.Split(pattern, "*")
	line, found := strings.CutPrefix(line, parts[0])
	for i, part := range parts[1:] {
		if i == len(parts)-2 {
			return found && strings.HasSuffix(line, part)
		}
		at := strings.Index(line, part)
		if at < 0 {
			return false
		}
		line = line[at+len(part):]
	}
	return found && line == ""
}

// resolves reports whether an anchor names the days, or the minute, of the label.
func resolves(m memory.Memory, span string) bool {
	first, last, ranged := strings.Cut(span, "..")
	if at, err := time.Parse("2006-01-02T15:04", first); err == nil {
		return m.ResolvedFrom.Equal(at)
	}
	if !ranged {
		last = first
	}
	return m.ResolvedFrom.Format(time.DateOnly) == first &&
		m.ResolvedTo.AddDate(0, 0, -1).Format(time.DateOnly) == last && m.ResolvedFrom.Hour() == 0
}

// repeats reports whether a label is a mention of a name that another memory holds, or one of more than are derived.
func repeats(l label, derived []memory.Memory) bool {
	if l.kind != memory.Mention {
		return false
	}
	mentions := 0
	for _, m := range derived {
		if m.Kind == memory.Mention {
			mentions++
		} else if strings.Contains(m.Content, strings.Trim(l.patterns[0], "*")) {
			return true
		}
	}
	return mentions >= comprehend.MaxMentions
}

// tally counts one kind.
type tally struct{ right, wrong, found, asked int }

func (c tally) precision() float64 { return float64(c.right) / float64(max(c.right+c.wrong, 1)) }
func (c tally) recall() float64    { return float64(c.found) / float64(max(c.asked, 1)) }

// floors are the recall that the grammar has reached: precision must not be bought with silence.
// The precision of each kind is at least 0.9 by what is promised.
var floors = map[string]float64{
	memory.Observation: 0.97, memory.Claim: 0.95, memory.Rule: 0.95, memory.Membership: 0.95,
	memory.Identity: 0.9, memory.Mention: 0.95, memory.TemporalAnchor: 0.97,
}

// The memories of texts as people write them, against what a careful reader accepts of each.
func TestLabelled(t *testing.T) {
	counts := map[string]*tally{}
	for _, k := range kinds {
		counts[k] = &tally{}
	}
	claims := map[string][]memory.Memory{}
	texts := readLabelled(t)
	for _, text := range texts {
		taken := make([]bool, len(text.labels))
		derived := comprehend.Extract(text.in)
	memories:
		for _, m := range derived {
			for i, l := range text.labels {
				if !taken[i] && l.accepts(m) {
					taken[i] = true
					counts[m.Kind].right++
					if l.key != "" {
						claims[l.key] = append(claims[l.key], m)
					}
					continue memories
				}
			}
			counts[m.Kind].wrong++
			t.Logf("wrong   %-15s %q  of %q", m.Kind, m.Content, text.in.Content)
		}
		for i, l := range text.labels {
			if !l.optional && (taken[i] || !repeats(l, derived)) {
				counts[l.kind].asked++
				if taken[i] {
					counts[l.kind].found++
				} else {
					t.Logf("missing %-15s %q  of %q", l.kind, l.patterns, text.in.Content)
				}
			}
		}
	}
	t.Logf("%d texts\n%-16s %9s %9s %7s %7s", len(texts), "kind", "precision", "recall", "derived", "asked")
	for _, k := range kinds {
		c := counts[k]
		t.Logf("%-16s %9.3f %9.3f %7d %7d", k, c.precision(), c.recall(), c.right+c.wrong, c.asked)
		if c.precision() < 0.9 || c.recall() < floors[k] || c.asked < 15 {
			t.Errorf("%s: precision %.3f, recall %.3f of %d", k, c.precision(), c.recall(), c.asked)
		}
	}
	checkKeys(t, claims)
}

// checkKeys holds the claims that supersede one another to one key each, and the others to keys of
// their own.
func checkKeys(t *testing.T, claims map[string][]memory.Memory) {
	t.Helper()
	owner := map[string]string{}
	for key, list := range claims {
		for _, m := range list {
			pair := m.Subject + " / " + m.Attribute
			if first := list[0].Subject + " / " + list[0].Attribute; pair != first {
				t.Errorf("%s: %q has %q and %q has %q", key, list[0].Content, first, m.Content, pair)
			}
			if other, ok := owner[pair]; ok && other != key {
				t.Errorf("%q is the key of %s and of %s", pair, other, key)
			}
			owner[pair] = key
		}
	}
}

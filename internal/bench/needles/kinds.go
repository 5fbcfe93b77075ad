package needles

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Kind is a kind of needle, with the texts around it.
type Kind struct {
	Name      string
	templates [templatesCount]template
	needle    func(*rand.Rand) string
	values    []string
}

// template is the shape of a text and of questions for it: {n} is the needle, {v} one of a few values.
type template struct {
	text      string
	questions []string
}

// Kinds returns all kinds.
func Kinds() []Kind { return slices.Concat(keys(), measures(), named()) }

// keys are the kinds whose needles are keys with digits.
func keys() []Kind {
	return []Kind{
		{"ticket keys", [templatesCount]template{
			{"Ticket {n} is the {v}.", []string{"What is {n}?", "What is ticket {n} about?"}},
			{"{n}: {v}, assigned and open.", []string{"Which ticket is {n}?"}},
		}, ticket, things},
		{"order numbers", [templatesCount]template{
			{"Order {n} was shipped to {v}.", []string{"Where was order {n} shipped?", "What happened to {n}?"}},
			{"The customer in {v} asked again about order {n}.", []string{"Who asked about order {n}?"}},
		}, order, places},
		{"file paths", [templatesCount]template{
			{"The template for the {v} is in {n}.", []string{"What is in {n}?"}},
			{"I moved the notes on the {v} to {n}.", []string{"Which notes are in {n}?"}},
		}, filePath, things},
		{"versions", [templatesCount]template{
			{"Release {n} fixes the {v}.", []string{"What does release {n} fix?", "What changed in {n}?"}},
			{"We tested {n} with the {v}.", []string{"What was {n} tested with?"}},
		}, version, things},
		{"amounts of money", [templatesCount]template{
			{"The invoice for the {v} came to {n} euros.", []string{"Which invoice came to {n} euros?"}},
			{"The {v} was sold for {n} dollars.", []string{"What was sold for {n} dollars?"}},
		}, amount, things},
		{"phone numbers", [templatesCount]template{
			{"{v} can be reached at {n}.", []string{"Who can be reached at {n}?", "Whose number is {n}?"}},
			{"A call from {n}: {v} is late.", []string{"Who called from {n}?"}},
		}, phone, people},
		{"IP addresses", [templatesCount]template{
			{"The controller of the {v} has the address {n}.", []string{"What has the address {n}?", "Which device is {n}?"}},
			{"{n} refused the login of the {v}.", []string{"Whose login did {n} refuse?"}},
		}, address, things},
		{"UUIDs", [templatesCount]template{
			{"Device {n} belongs to the {v}.", []string{"What does device {n} belong to?"}},
			{"Session {n} of the {v} was closed.", []string{"Whose session was {n}?"}},
		}, uuid, things},
		{"dates in texts", [templatesCount]template{
			{"The licence of the {v} runs out on {n}.", []string{"Which licence runs out on {n}?"}},
			{"{n}: inspection of the {v}, no findings.", []string{"What was inspected on {n}?"}},
		}, date, things},
		{"rooms", [templatesCount]template{
			{"Room {n} is reserved for {v}.", []string{"Who has room {n}?", "Who is in {n}?"}},
			{"The heating in {n} is out of order, {v} was told.", []string{"What is wrong in {n}?"}},
		}, room, people},
	}
}

// measures are the kinds whose needles are codes and quantities.
func measures() []Kind {
	return []Kind{
		{"error codes", [templatesCount]template{
			{"The display shows {n} when the {v} is wet.", []string{"What does {n} mean?", "When does the display show {n}?"}},
			{"{n} again, this time from the {v}.", []string{"Where did {n} come from?"}},
		}, errorCode, things},
		{"flights", [templatesCount]template{
			{"Flight {n} goes to {v}.", []string{"Where does flight {n} go?", "Where does {n} go?"}},
			{"The crew from {v} is booked on {n}.", []string{"Which crew is booked on {n}?"}},
		}, flight, places},
		{"product codes", [templatesCount]template{
			{"Part {n} fits the {v}.", []string{"What does part {n} fit?", "What is {n} for?"}},
			{"We are out of {n} for the {v}.", []string{"What are we out of, is it {n}?"}},
		}, product, things},
		{"coordinates", [templatesCount]template{
			{"The buoy of {v} lies at {n}.", []string{"Which buoy lies at {n}?", "What is at {n}?"}},
			{"Sonar contact at {n}, reported from {v}.", []string{"Who reported the contact at {n}?"}},
		}, coordinates, places},
		{"times of day", [templatesCount]template{
			{"The ferry to {v} leaves at {n}.", []string{"Which ferry leaves at {n}?", "What leaves at {n}?"}},
			{"The gate in {v} opens at {n}.", []string{"Which gate opens at {n}?"}},
		}, clock, places},
		{"percentages", [templatesCount]template{
			{"The tank of the {v} is at {n} percent.", []string{"Which tank is at {n} percent?"}},
			{"Output of the {v} rose by {n}%.", []string{"Whose output rose by {n}%?"}},
		}, percentage, things},
		{"tokens", [templatesCount]template{
			{"{n}", nil},
			{"note {n} of the {v}", nil},
		}, holder, things},
		{"commits", [templatesCount]template{
			{"Commit {n} broke the {v}.", []string{"What did commit {n} break?"}},
			{"The test of the {v} passes since {n}.", []string{"Which test passes since {n}?"}},
		}, commit, things},
		{"German", [templatesCount]template{
			{"Der Auftrag {n} liegt bei Frau {v}.", []string{"Wer hat den Auftrag {n}?", "Bei wem liegt {n}?"}},
			{"Für {n} fehlt noch die Unterschrift von {v}.", []string{"Was fehlt für {n}?"}},
		}, germanOrder, people},
		{"Japanese numbers", [templatesCount]template{
			{"注文番号{n}は{v}に発送済みです。", []string{"注文番号{n}はどこに発送されましたか？"}},
			{"会議室{n}は{v}の予約が入っています。", []string{"会議室{n}の予約は？"}},
		}, germanOrder, japanesePlaces},
	}
}

// named are the kinds whose needles are names.
func named() []Kind {
	return []Kind{
		{"names", [templatesCount]template{
			{"{n}'s birthday is on {v}.", []string{"When is {n}'s birthday?", "When was {n} born?"}},
			{"On {v} we have dinner with {n}.", []string{"When do we have dinner with {n}?"}},
		}, name, days},
		{"e-mail addresses", [templatesCount]template{
			{"{v} answers mail at {n}.", []string{"Who answers mail at {n}?"}},
			{"The report of {v} goes to {n}.", []string{"Whose report goes to {n}?"}},
		}, mail, people},
		{"identifiers", [templatesCount]template{
			{"{n} returns the {v}.", []string{"What does {n} return?"}},
			{"We renamed a helper of the {v} to {n}.", []string{"What is {n}?"}},
		}, identifier, things},
		{"environment variables", [templatesCount]template{
			{"{n} sets the limit of the {v}.", []string{"What does {n} set?"}},
			{"Without {n} the {v} does not start.", []string{"What needs {n}?"}},
		}, variable, things},
		{"settings", [templatesCount]template{
			{"{n} is for {v} only.", []string{"What is {n} for?"}},
			{"{v} asked me to change {n}.", []string{"Who asked to change {n}?"}},
		}, setting, people},
		{"hosts", [templatesCount]template{
			{"The backup of the {v} runs on {n}.", []string{"What runs on {n}?", "Which backup is on {n}?"}},
			{"The job of the {v} moved to {n}.", []string{"Which job moved to {n}?"}},
		}, host, things},
		{"Japanese names", [templatesCount]template{
			{"{n}さんの誕生日は{v}です。", []string{"{n}さんの誕生日はいつですか？"}},
			{"{n}さんは{v}に出張します。", []string{"{n}さんの出張はいつ？"}},
		}, japaneseName, japaneseDays},
	}
}

func ticket(r *rand.Rand) string {
	return fmt.Sprintf("%s-%d-%d", pick(r, "AB", "AC", "BA", "KX"), 10+r.IntN(4), 100+r.IntN(900))
}

func order(r *rand.Rand) string { return fmt.Sprintf("%d%04d", 417+r.IntN(3), r.IntN(10_000)) }

func filePath(r *rand.Rand) string {
	return fmt.Sprintf("/srv/%s/%d/%s/form-%d.%s", pick(r, "quay", "mole"), 2021+r.IntN(4),
		pick(r, "intake", "outbound", "customs"), r.IntN(60), pick(r, "odt", "pdf"))
}

func version(r *rand.Rand) string {
	return fmt.Sprintf("%s%d.%d.%d", pick(r, "", "v"), 1+r.IntN(5), r.IntN(20), r.IntN(20))
}

func amount(r *rand.Rand) string {
	return fmt.Sprintf("%d,%03d.%d0", 1+r.IntN(9), r.IntN(1000), r.IntN(10))
}

func phone(r *rand.Rand) string {
	return fmt.Sprintf("+%d %d %d %04d", 44+r.IntN(4), 20+r.IntN(3), 550+r.IntN(4), r.IntN(10_000))
}

func address(r *rand.Rand) string {
	return fmt.Sprintf("10.%d.%d.%d", r.IntN(4), r.IntN(32), 1+r.IntN(250))
}

func uuid(r *rand.Rand) string {
	return fmt.Sprintf("%08x-%04x-4%03x-9%03x-%012x", r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), r.IntN(1<<12),
		r.Int64N(1<<48))
}

func date(r *rand.Rand) string {
	months := []string{"January", "March", "April", "June", "July", "September", "October", "December"}
	return fmt.Sprintf("%d %s %d", 1+r.IntN(28), months[r.IntN(len(months))], 2031+r.IntN(6))
}

func room(r *rand.Rand) string {
	return fmt.Sprintf("%s%d.%02d", pick(r, "A", "B", "C", "D", "E"), r.IntN(6), r.IntN(60))
}

func errorCode(r *rand.Rand) string {
	return fmt.Sprintf("%s%d", pick(r, "E-", "ERR_", "F"), 1000+r.IntN(900))
}

func flight(r *rand.Rand) string {
	return fmt.Sprintf("%s%d", pick(r, "LH", "KL", "SK", "BA"), 100+r.IntN(900))
}

func product(r *rand.Rand) string {
	return fmt.Sprintf("%d.%d/%s-%d", 70+r.IntN(9), 100+r.IntN(50), pick(r, "A", "B", "C"), 1+r.IntN(9))
}

func coordinates(r *rand.Rand) string {
	return fmt.Sprintf("54.%04d N, 10.%04d E", 3000+r.IntN(900), 1000+r.IntN(900))
}

func clock(r *rand.Rand) string { return fmt.Sprintf("%02d:%02d", r.IntN(24), r.IntN(60)) }

func percentage(r *rand.Rand) string { return fmt.Sprintf("%d.%02d", r.IntN(40), r.IntN(100)) }

func holder(r *rand.Rand) string {
	return fmt.Sprintf("o%d-%d is held by tok%06x", r.IntN(4), r.IntN(400), r.IntN(1<<24))
}

func commit(r *rand.Rand) string { return fmt.Sprintf("%07x", r.IntN(1<<28)) }

func germanOrder(r *rand.Rand) string { return fmt.Sprintf("%d-%d", 40+r.IntN(5), 1000+r.IntN(900)) }

func name(r *rand.Rand) string {
	return givenNames[r.IntN(len(givenNames))] + " " + familyNames[r.IntN(len(familyNames))]
}

func mail(r *rand.Rand) string {
	return fmt.Sprintf("%s.%s@%s.example", lower(r, givenNames), lower(r, familyNames), pick(r, "quay", "mole", "tug"))
}

func identifier(r *rand.Rand) string {
	return pick(r, "load", "merge", "drop", "check", "parse") + title(r, subjects) + title(r, subjects) + title(r, objects)
}

func variable(r *rand.Rand) string {
	return "HARBOUR_" + upper(r, subjects) + "_" + upper(r, subjects) + "_" + upper(r, objects)
}

func setting(r *rand.Rand) string {
	return lower(r, subjects) + "." + lower(r, subjects) + "." + lower(r, objects)
}

func host(r *rand.Rand) string {
	return fmt.Sprintf("%s-%02d.%s.%s.example", lower(r, subjects), r.IntN(20), pick(r, "lund", "oslo", "gent"),
		pick(r, "quay", "mole"))
}

func japaneseName(r *rand.Rand) string {
	return japaneseFamilies[r.IntN(len(japaneseFamilies))] + japaneseGiven[r.IntN(len(japaneseGiven))]
}

// The values of templates. None has a digit.
var (
	things = strings.Split("leaking valve,loose rope,broken crane,old boiler,blue container,fire door,salt pump,"+
		"grain lift,tide gauge,spare anchor,radio mast,fuel hose,ice machine,cargo net,weather station,fog horn,"+
		"steel gangway,water tank,paint shop,canteen oven", ",")
	people = strings.Split("Ilse,Marek,Tuva,Osei,Renzo,Yael,Piet,Alba,Joost,Signe,Nuno,Edda,Rafi,Lotte,Emre,Vida", ",")
	places = strings.Split("Rostock,Malmo,Gdynia,Bergen,Turku,Ostend,Cork,Vigo,Bari,Split,Riga,Narvik,Esbjerg,Brest", ",")
	days   = strings.Split("the third of May,the first of June,the ninth of March,the second of August,"+
		"the tenth of October,the sixth of July,the fifth of April,the eighth of November", ",")

	japanesePlaces = strings.Split("東京,大阪,名古屋,札幌,福岡,仙台,広島,京都", ",")
	japaneseDays   = strings.Split("五月三日,六月一日,三月九日,八月二日,十月十日,七月六日,四月五日,十一月八日", ",")
)

// The parts of names and identifiers.
var (
	givenNames = strings.Fields("Petra Noor Jonas Amira Lukas Freya Tomas Ingrid Kofi Selma Bruno " +
		"Wanda Felix Greta Hugo Irina Jannis Katja Levi Mirjam Nadia Oskar " +
		"Paula Quirin Rosa Stefan Tamara Ulrich Vera Walter Xaver Yvonne")
	familyNames = strings.Fields("Vogel Lindt Okafor Berger Castro Dijkstra Eriksen Fontaine Gruber Haddad Ivanov " +
		"Jansen Kowalski Larsen Moreau Novak Olsen Petrov Quist Romano Sato Torres " +
		"Ulmer Varga Weber Xenakis Yilmaz Zeman Ahlberg Bianchi Conrad Dorn")
	subjects = strings.Fields("crane berth tariff invoice vessel pilot ballast customs tide cargo ledger anchor roster " +
		"permit gate fender")
	objects          = strings.Fields("cache limit rate index total queue window draft quota token")
	japaneseFamilies = strings.Fields("山田 佐藤 鈴木 高橋 田中 伊藤 渡辺 中村 " +
		"小林 加藤 吉田 山本 松本 井上 木村 斎藤 " +
		"清水 山口 森田 池田 橋本 石川 前田 岡田 " +
		"長谷 藤田 後藤 近藤 村上 遠藤 青木 坂本")
	japaneseGiven = strings.Fields("花子 太郎 健一 美咲 直樹 由美 翔太 恵子 " +
		"大輔 陽子 拓也 真理 和也 千秋 誠司 裕子 " +
		"隆志 智子 浩二 彩香 剛志 麻衣 康平 優奈 " +
		"正人 春香 亮介 瞳子 哲也 愛美 幸男 菜摘")
)

// everyday makes a text about something else, without a digit.
func everyday(r *rand.Rand) string {
	return pick(r, "Yesterday", "This morning", "After lunch", "On the way home", "Last weekend", "Before the meeting") +
		" " + pick(r, "my neighbour", "the new colleague", "our landlord", "my aunt", "the baker", "a friend") + " " +
		pick(r, "talked about the garden", "forgot the umbrella", "recommended a novel", "cooked lentil soup",
			"repaired the bicycle", "complained about the noise", "told a joke about penguins", "bought cheap carrots",
			"asked for the ladder", "watched the football match", "planted tomatoes", "practised the clarinet") +
		pick(r, ".", ", as usual.", ", which surprised me.", " and left early.", " in the rain.")
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

func lower(r *rand.Rand, from []string) string { return strings.ToLower(pick(r, from...)) }

func upper(r *rand.Rand, from []string) string { return strings.ToUpper(pick(r, from...)) }

func title(r *rand.Rand, from []string) string {
	word := pick(r, from...)
	return strings.ToUpper(word[:1]) + word[1:]
}

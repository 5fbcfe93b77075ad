package needles

import (
	"math/rand/v2"
	"strings"
)

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

package recall

import (
	"strings"
	"sync"
)

// synonyms are words for the same thing, one group a line.
const synonyms = `
mom mother mum mommy mama
dad father daddy papa
kid child toddler
son boy
daughter girl
grandma grandmother granny
grandpa grandfather
husband spouse partner hubby
wife spouse partner
movie film
picture photo pic photograph image
job career profession occupation employment
buy purchase
car vehicle automobile
house home
begin start
finish complete
film movie
doctor physician
ill sick unwell
vacation holiday trip getaway
trip travel journey visit
happy glad joyful thrilled
sad unhappy upset
angry mad furious
scared afraid frightened
help assist support aid
gift present
dog puppy pup doggo
cat kitten kitty
money cash fund
begin commence
big large huge
bike bicycle cycling
tv television
phone cellphone smartphone
store shop
city town
company firm business
boss manager supervisor
employee worker staff
colleague coworker teammate
friend buddy pal
exam test
class course lesson workshop
university college
school academy
speak talk speech
fight argue quarrel
stress anxiety pressure
relax unwind destress chill
calm relax
exercise workout fitness gym
jog run
marry wedding marriage
divorce breakup split separate
born birth birthday
die death pass away
move relocate
live reside
quit resign
hire recruit
fire layoff dismiss
earn salary wage pay income
author writer
novel book
song music
band musician singer artist
paint painting artwork art
draw drawing sketch
cook bake recipe
meal dinner lunch breakfast
restaurant cafe diner eatery
volunteer volunteering charity
donate donation give
plan intend
decide decision choose
goal aim objective dream
hobby pastime interest activity
enjoy love like
favorite favourite prefer preference
injury hurt injured wound
accident crash collision
damage broken break
repair fix
problem issue trouble challenge
solution answer
competition contest tournament
win victory
prize award
teach teacher instructor coach
student pupil
meeting appointment
schedule calendar
deadline due
budget cost price expense
cheap affordable
expensive costly
rent lease
apartment flat condo
error bug failure
deploy release launch ship
code program software app
database db postgres mysql
server host
user customer client
feature functionality
fast quick speed performance
slow latency
beach ocean sea coast
mountain hill peak summit
forest wood
lake river
hike trek trail
camp camping tent campfire
garden gardening plant flower
religion faith church
country nation
nationality origin
`

// kinds are words for a kind of thing, and common words for things of that kind, the most usual
// first.
const kinds = `
family:mom mother dad father brother sister son daughter kid child husband wife parent grandma grandpa grandmother grandfather aunt uncle cousin nephew niece sibling
parent:mom mother dad father
child:son daughter kid baby toddler boy girl
relative:aunt uncle cousin grandma grandpa nephew niece
pet animal:dog cat puppy kitten hamster rabbit fish bird parrot turtle snake horse lizard
animal:lion tiger bear elephant wolf deer whale dolphin cow pig sheep goat chicken duck fox monkey
instrument:guitar piano violin drum flute clarinet saxophone trumpet cello ukulele harp bass keyboard
music:concert song band album jazz rock pop classical symphony orchestra rap singer guitar piano violin gig
sport:soccer football basketball baseball tennis golf hockey swim volleyball run cycle ski snowboard surf rugby cricket badminton climb box boxing skate wrestle marathon yoga
exercise:run yoga gym swim weight pilates jog walk hike cycle workout cardio stretch 
martial:karate judo taekwondo  kungfu jiujitsu boxing aikido
dessert:cake pie cookie ice-cream brownie pudding tart cupcake chocolate custard mousse cheesecake donut pastry
food meal dish cuisine:pizza pasta burger salad soup sandwich rice noodle chicken steak fish sushi taco curry bread cheese cake pie cookie vegetable fruit snack
drink beverage:coffee tea wine beer juice soda water smoothie cocktail milk
fruit:apple banana orange grape strawberry mango peach pear lemon berry
vegetable:carrot potato tomato onion spinach broccoli pepper lettuce
country:spain france england italy germany japan china india canada mexico brazil australia sweden norway thailand turkey greece ireland scotland portugal russia korea egypt morocco america netherlands switzerland vietnam indonesia rwanda kenya
european europe:spain france england italy germany sweden norway greece ireland scotland portugal netherlands switzerland austria poland belgium denmark finland london paris rome barcelona
asian asia:japan china india thailand korea vietnam indonesia singapore tokyo bali
state:california texas florida oregon washington colorado alaska hawaii nevada arizona michigan ohio virginia georgia carolina minnesota wisconsin utah montana idaho maine vermont
city place location:london paris rome boston chicago seattle york francisco angeles miami toronto berlin tokyo barcelona madrid rio
outdoor nature:hike camp trail mountain beach lake river park forest climb kayak fish surf picnic bike
activity hobby:paint pottery read hike camp swim run dance cook garden knit photography yoga game craft draw sing sew write chess fish climb surf bake puzzle
art artwork:paint painting sculpture pottery drawing sketch mural portrait watercolor photography canvas clay
craft:pottery knit sew clay woodwork crochet jewelry candle
event:concert festival parade conference wedding party meeting workshop fundraiser race marathon exhibition show ceremony rally fair tournament
health illness condition:diabetes asthma allergy flu cold cancer migraine injury anxiety depression surgery doctor hospital weight gastritis
emotion feeling:happy sad angry nervous excited proud scared anxious grateful lonely overwhelmed thankful
job profession career:teacher engineer doctor nurse lawyer counselor designer developer manager chef writer artist police firefighter programmer accountant scientist
clothing clothes:shirt shoe dress jacket hat sneaker jeans coat sweater boot
color colour:red blue green yellow purple orange pink black white brown
vehicle transport:car truck bus train bike motorcycle plane boat van
book read:novel author chapter story series fantasy
game gaming:chess monopoly nintendo xbox playstation console puzzle card board
subject:math history science biology physics chemistry english
language:english spanish french german italian chinese japanese korean
disaster:flood fire earthquake storm hurricane tornado
weather:rain snow sun storm wind cloud
furniture:chair table couch sofa bed desk lamp
device gadget:phone laptop computer tablet camera watch headphones
season:spring summer autumn fall winter
holiday:christmas thanksgiving easter halloween birthday
weekday:monday tuesday wednesday thursday friday saturday sunday
spiritual religious religion:church faith prayer god bible meditation temple
injury:sprain broken fracture ankle knee back
allergy:dairy nut peanut gluten fur cat dog
`

// related maps a term to the terms that a text may use instead: its synonyms, then words of its
// kind. The tables are small, since the index looks up each of their words.
var (
	related = sync.OnceValue(func() map[string][]string {
		stem := func(word string) string {
			e := newEntry(word, word)
			if e.alphabet != latin || e.stops.has(inEnglish) {
				return ""
			}
			return strings.TrimPrefix(e.in(inEnglish)[0], inEnglish.marker()+":")
		}
		return relatedTerms(stem)
	})
	formerRelated = sync.OnceValue(func() map[string][]string { return relatedTerms(formerTermOf) })
)

func relatedTerms(termOf func(string) string) map[string][]string {
	table := make(map[string][]string)
	add := func(word, other string) {
		from, to := termOf(word), termOf(other)
		if from != "" && to != "" && from != to {
			table[from] = append(table[from], to)
		}
	}
	for line := range strings.Lines(synonyms) {
		group := strings.Fields(line)
		for _, a := range group {
			for _, b := range group {
				add(a, b)
			}
		}
	}
	for line := range strings.Lines(kinds) {
		names, members, _ := strings.Cut(line, ":")
		for name := range strings.FieldsSeq(names) {
			for member := range strings.FieldsSeq(members) {
				add(name, member)
			}
		}
	}
	for term, others := range table {
		table[term] = distinct(others)
	}
	return table
}

package recall

// baseOf returns the base of an English word whose stem no rule finds, and any other word as it is.
func baseOf(word string) string {
	if base, irregular := irregularForms[word]; irregular {
		return base
	}
	return word
}

// irregularForms are words whose stem no rule finds, each with its base.
var irregularForms = wordPairs(`
ate eat eaten eat became become began begin begun begin bit bite bitten bite blew blow blown blow bought buy broke break
broken break brought bring built build came come caught catch chose choose chosen choose dealt deal drank drink
drawn draw drew draw driven drive drove drive drunk drink dug dig fallen fall fed feed fell fall felt feel flew fly flown fly
forgot forget forgotten forget fought fight found find froze freeze frozen freeze gave give went go gone go
grew grow grown grow heard hear held hold hid hide hidden hide hung hang kept keep knew know known know laid lay led lead
left leave lent lend lit light lost lose meant mean met meet paid pay ran run rang ring ridden ride risen rise rode ride rose rise
sang sing sung sing sat sit saw see seen see sent send shaken shake shook shake shot shoot shown show slept sleep sold sell
sought seek spent spend spoke speak spoken speak spun spin stole steal stolen steal stood stand struck strike stuck stick
swam swim swum swim swore swear sworn swear taken take took take taught teach thrown throw threw throw tore tear torn tear
understood understand woke wake woken wake won win wore wear worn wear wrote write written write
children child men man women woman people person feet foot teeth tooth mice mouse geese goose wives wife lives life knives knife
leaves leaf shelves shelf wolves wolf halves half better good best good worse bad worst bad
`)

package recall

// formerStopWords and formerIrregular are the lists of the former analysis. They never change, since indexes hold their
// effect.
var formerStopWords = wordSet(`
a an the this that these those here there
i me my mine myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
it its itself they them their theirs themselves one ones someone anyone everyone somebody anybody everybody nobody
something anything everything nothing
and or but nor so yet if then else than because as until while although though unless whereas whether
of at by for with about against between into through during before after above below to from up down in out on off over
under again further once upon within without toward towards onto per via among across along around behind beside besides
beyond near since
am is are was were be been being do does did doing done have has had having will would shall should can could might must
ought cannot dont doesnt didnt isnt arent wasnt werent havent hasnt hadnt wont wouldnt shouldnt couldnt cant mustnt aint
ca wo sha im ive id youre youve youll youd hes shes weve theyre theyve theyll thats whats wheres whos lets
what which who whom whose when where why how whatever whichever whoever whenever wherever however
not no yes yeah yep nope ok okay oh hey hi hello wow ah um uh hmm haha lol please thanks thank
all any both each few more most other others some such only own same too very just also even ever never always often
sometimes usually still already now then soon later ago really quite rather pretty almost maybe perhaps probably
actually basically definitely certainly simply especially
many much lot lots several various enough least less
get gets got getting gotten go goes going make makes made making let like likes liked
say says said saying tell tells told telling mention mentions mentioned ask asks asked asking talk talked
know knows think thinks thought seem seems want wants need needs
kind sort type way thing things stuff
else etc ie eg vs s t d ll m re ve
did does according regarding concerning based describe list name give given
`)

var formerIrregular = wordPairs(`
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

"""Words that anybody says: alone, or two beside each other, they mean no product and cite nothing.

Source: words of general English prose that shops' descriptions share, names of materials, things and brands
taken out; and what shopping agents say in the languages of the catalogue's countries. Longer lists cost
honest traces little, since ids, prices and the other words of a title remain.
"""

from __future__ import annotations

# Field names of the tools' results and glue words: a pair with one of these proves nothing.
NO_DATA = """
product products id ids shop title price service services sku options option attributes attribute sold count
brand category short description specification result results error true false null none found match matches a
an the and or of in on at to for from with by is are was be it its this that these those as not no new el la
los las un una de y o en con por para que es su del al se no lo mas ng sa ang na mga ay at dan yang di ke dari
untuk và của là cho có với
"""

_ENGLISH = """
able about above absence absolutely accept acceptable accepted access according account accurate across action
actual actually adding addition additional additionally adds after again against ahead alike allow allowed
allows almost alone along already also alternative alternatives although always among amount analyse analysed
analysis another answer anybody anyone anything anyway apart appear appears applicable application apply
approach appropriate approved area around arrive arrives aside asked asking asks aspect assistant assume
attached available average avoid away back bare base based basic basically basket because become becomes been
before begin beginning behind being believe below benefit beside besides best better between beyond body both
bottom bring brings broken budget build built business button buyer buying call called calls came candidate
candidates cannot care careful carefully carry case cases cause caused cell centre certain certainly change
changed changes character charge cheap cheaper cheapest check checked checking checks choice choices choose
chooses choosing chose chosen claim clean clear clearly close closed closer closest code coefficient color
colour column combination combine combined come comes common company comparable comparative compare compared
compares comparing comparison compatible complete completed completely completion computer conclude conclusion
condition conditions confident confirm confirmed connect consider considered considering consistent constant
construction contain contained contains content continue convenience convenient copy core correct correctly
cost costs could countries country course cover create created criteria criterion critical cross current
currently custom customer customers data date days deal decide decided decision deep default definitely deliver
delivered delivery demand depend depending depends description design desired detail detailed details determine
development device differ difference differences different differently difficult digital dimension direct
direction directly discount distance document does doing dollars done double doubt down drop due during each
earlier early easier easily easy edge effect effective efficient effort either element elements else empty
enable end ends enough ensure enter entire entirely entity entry equal equally equivalent error especially
essential even evenly event eventually ever every everybody everyone everything evidence exact exactly example
examples excellent except exceed exceeds expect expected expensive experience explain express extend extra
extreme face fact factor factors fair fairly fall false fast faster feature features feel feels fewer field
fill filled filter final finalise finally find finding finds fine finish finished finishes first fits five
fixed flawless follow followed following follows force forget form format former forward four frame free
frequently fresh friendly from front fulfil fulfill full fully function functional functions further future
gate gates general generally generic gets getting give given gives giving glance goal goes going good goods
google great greater grounded group guess guide guarantee half hand handle handling happen happens happy hard
hardly have having head heading heard height held hello help helpful helps hence here high higher highest
highly hold hope hour hours however ideal ideally identical identify ignore image imagine immediate immediately
important improve include included includes including incomplete incorrect increase indeed independent
individual information initial input inside install instance instead instruction instructions intended interest
interesting international introduction involve issue item items itself join judge just keep keeping keeps kept
kind kinds know known knows label lack lacks language large larger largest last lasting late later latest
latter lead leading least leave left length less level light lightweight like likely likewise limit limited
limits line lines link list listed listing lists little live load local location logical long longer longest
look looked looking looks lose loss lost lots love lovely lower lowest machine made main mainly maintain major
make makes making manner manual manufacturer many mark market marks match matched matches matching material
matter maximum maybe mean meaning means meant meanwhile measure meet meeting meets mention mentioned message
method middle might mind minimum minor minute minutes miss missing mode model moment money month months more
moreover most mostly move much multiple must name named namely names native natural near nearest nearly
necessary need needed needs negative neither network never nevertheless next nice nobody none normal normally
note noted nothing notice number numbers object obvious obviously occur offer offered offers office often okay
once ones online only onto open opened opening operating opinion option options order ordered ordinary original
other others otherwise outcome output outside outstanding over overall overview own page pages pair part
particular particularly parts party pass passed passes past patient patiently pattern pays people percent
perfect perfectly perform performance perhaps period person personal phase physical pick picked picking picks
picture piece pieces place placed places plain plan planned planning plans please plus point points poor
popular portion position positive possible possibly potential power practical precise precisely prefer
preferable preference preferred prefers premium present press pretty prevent previous previously price priced
prices primary principle print probably problem problems procedure proceed proceeded process produce product
production products program promise proper properly properties property protect protection proves provide
provided provides public purchase pure purpose purposes quality quantity question questions quick quicker
quickly quite range rank ranked rate rather rating reach read reader reading ready real reality really reason
reasonable reasonably reasoning reasons receive recommend recommendation recommended recommends record reduce
refer reference regard regarding regardless regular related relative relatively release relevant reliable
remain remaining remains remember remove repeat replace reply report request requested requests require
required requirement requirements requires respect response responsible rest result results return returned
returns review reviews right rigorous room round rule rules running safe said sale same sample satisfied
satisfies satisfy save saves says scale score search searched searches searching second seconds section seem
seemed seems seen select selected selecting selection sell seller sellers sells send sense sensible sent
separate separately serious serve service services session sets setting settings seven several shall shape
share sharp ship shipped shipping ships shop shopper shoppers shopping shops short shorter should show showed
showing shown shows side sides sign significant similar similarly simple simply since single situation size
sized sizes slightly slow small smaller smallest smart smooth sold solid solution some somebody somehow someone
something sometimes somewhat soon sort sorted sound source space span speak special specific specifically
specified speed spend standard start started starting starts state stated statement states status stay step
steps still stop stopped storage store stores straight strange strict strictly strong stronger strongly
structure style subject such sufficient suggest suggested suggests suit suitable suited suits super superb
supply support supported supports suppose supposed sure surely system table take taken takes taking talk target
task team technical technology tell tells term terms test tested tests text than thank thanks that their them
themselves then there therefore these they thick thin thing things think thinking third this those though
thought thoughts thousand three through throughout thus time times title today together told took tool tools
total totally touch toward towards trace track trade traditional treat tried true truly trust turn turned turns
twice type types typical typically ultimate under understand unfortunately unique unit universal unless unlike
until upon upper usage used useful user users uses using usual usually valid valuable value values variant
variants variety various vendor verdict verified verify version very view viewed vital voucher wait waiting
want wanted wants warning warranty watch ways week weeks weigh weighed weighing weight well went were what
whatever when whenever where whereas whether which whichever while whole whose wide wider width will wise wish
wished wishes with within without word words work working works world worse worst worth worthwhile would write
written wrong year years yesterday young your yours yourself zero good-looking affordable beautiful brand buy
bought budget-friendly deliveries eight hundred nine nineteen six seven ten twelve twenty thirty fifty job jobs
maybe pesos peso planner set top two one yes
"""

_OTHERS = """
además ahora alguna alguno antes aquí asimismo aunque barata barato busca buscar busco cada calidad candidato
cara caro comparar comparé compra comprar como comparación comprador con creo cualquier cuando cuesta cuestan
cumple cuidado dado debe decir desde después dice donde elegir elijo entonces entre envío esa ese esta está
estaba este espera esto excelente falta finalmente hacer hacia hasta hecho lista listo luego mayor mejor
mejores menos menor mientras mismo mucho muy necesita ninguna ninguno nada opción opciones otra otro otros para
parece pedido pero perfecto perfecta poco porque precio precios previsto primer primera primero principio
producto productos puede pues quiere quiero razón recomendar recomiendo requisito requisitos resultado
resultados segunda segundo según seguir siempre sigo siguiente sobre solo también tanto tener termino tengo
tiempo tiene tienen toda todas todo todos trabajo último usuario vale vamos anh bạn bằng bây bước các cái cần
chỉ chiếc chọn chúng cũng của danh sách dùng đã đang đầu tiên đây để đến đó đúng được giá giờ hai hàng hoặc
hoàn thành hợp hơn kế hoạch kết quả khác khách không là lại làm lựa mà mình một mua muốn này nên nếu người nhất
nhiều như nhưng phẩm phù rất rẻ rồi sản sánh sau so sẽ tất cả tốt theo thế thì thứ tiếp tục tiếp tìm tôi trong
trước từ tuyệt và vậy về vẫn vì việc với yêu cầu ako alin aking dahil din dito gusto hindi ibang ito itong iyon
kailangan kasi kaya kung kaysa lang lahat maganda mahal mas may mura muna naman namin natin pareho pero
pipiliin piliin puwede pwede sana sulit talaga tapos tayo wala yung adalah agar akan atau bagus barang belum
bisa cocok dalam dengan harga ini itu jadi juga kami kalau karena kita kualitas lagi lain lebih mahal mana
masih memilih mencari murah pada paling pembeli pilih pilihan saya sangat sesuai semua sudah tapi tetapi tidak
untuk 好的 现在 我们 继续 清单 单上 下一 一件 件事 按计 计划 划完 完成 成这 这个 任务 然后 给出 推荐 出推 比较
较了 所有 商品 有商 产品 第一 一个 第二 二个 更好 因为 它更 更便 便宜 所以 选择 用户 要求 符合 合要 更符 价格
结果 搜索 查看 可以 需要 不需 要再 看了 很好 完全 全符 非常 质量 满足 购买 最好 最佳 而且 但是 如果 没有 这款
那款 这条 那条 一条 另一 另外 其他 前者 后者 仔细 细比 考虑 认为 应该 已经 还是 以及 或者 同时 首先 其次 最后
其中 目前 适合 合适 优质 高质 性价 价比 一款 款商 包邮 品质 推荐这 เอาล่ะ ตอนนี้ ฉันจะ ทำงาน ต่อไป ตามรายการ
และทำให้เสร็จ ตามแผน สินค้า ราคา ถูกกว่า ดีกว่า เพราะ ดังนั้น เลือก แนะนำ ผู้ใช้ ต้องการ ค้นหา ผลลัพธ์ ตัวแรก
ตัวที่สอง เหมาะ เหมาะสม คุณภาพ เปรียบเทียบ ทั้งหมด ชิ้นแรก ตรงตาม ความต้องการ งบประมาณ จึงเลือก ขอแนะนำ
"""

ORDINARY = _ENGLISH + _OTHERS

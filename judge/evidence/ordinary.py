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
able about above absence absolutely accept acceptable access according account accurate across action actual actually
adding addition additional additionally adds after again against ahead alike allow almost alone along already also
alternative although always among amount analyse analysis another answer anybody anyone anything anyway apart appear
applicable application apply approach appropriate approved area around arrive aside asked asking asks aspect assistant
assume attached available average avoid away back bare base based basic basically basket because become been before
begin behind being believe below benefit beside best better between beyond body both bottom bring broken budget build
built business button buyer buying call called came candidate cannot care careful carefully carry case cases cause cell
centre certain certainly change character charge cheap cheaper cheapest check choice choose chose chosen claim clean
clear clearly close closer closest code coefficient color colour column combination combine come common company
comparable comparative compare comparison compatible complete completely completion computer conclude conclusion
condition confident confirm connect consider consistent constant construction contain content continue convenience
convenient copy core correct correctly cost could countries course cover create criteria criterion critical cross
current currently custom customer data date days deal decide decision deep default definitely deliver delivery demand
depend design desired detail determine development device differ difference different differently difficult digital
dimension direct direction directly discount distance document does doing dollars done double doubt down drop due
during each earlier early easier easily easy edge effect effective efficient effort either element else empty enable
end ends enough ensure enter entire entirely entity entry equal equally equivalent especially essential even evenly
event eventually ever every everybody everyone everything evidence exact exactly example excellent except exceed expect
expensive experience explain express extend extra extreme face fact factor fair fairly fall fast faster feature feel
fewer field fill filled filter final finalise finally find fine finish first fits five fixed flawless follow force
forget form format former forward four frame free frequently fresh friendly front fulfil fulfill full fully function
functional further future gate general generally generic gets getting give given giving glance goal goes going good
google great greater grounded group guess guide guarantee half hand handle happen happy hard hardly have having head
heard height held hello help helpful hence here high higher highest highly hold hope hour however ideal ideally
identical identify ignore image imagine immediate immediately important improve include incomplete incorrect increase
indeed independent individual information initial input inside install instance instead instruction intended interest
international introduction involve issue item itself join judge just keep kept kind know known label lack language
large larger largest last late later latest latter lead least leave left length less level light lightweight like
likely likewise limit line link list little live load local location logical long longer longest look lose loss lost
lots love lovely lower lowest machine made main mainly maintain major make making manner manual manufacturer many mark
market material matter maximum maybe mean meant meanwhile measure meet mention message method middle might mind minimum
minor minute miss missing mode model moment money month more moreover most mostly move much multiple must name named
namely native natural near nearest nearly necessary need negative neither network never nevertheless next nice nobody
normal normally note noted nothing notice number object obvious obviously occur offer office often okay once ones
online only onto open operating opinion order ordinary original other otherwise outcome output outside outstanding over
overall overview own page pair part particular particularly party pass passed past patient patiently pattern pays
people percent perfect perfectly perform performance perhaps period person personal phase physical pick picture piece
place plain plan please plus point poor popular portion position positive possible possibly potential power practical
precise precisely prefer preferable preference premium present press pretty prevent previous previously primary
principle print probably problem procedure proceed proceeded process produce production program promise proper properly
properties protect protection proves provide public purchase pure purpose quality quantity question quick quicker
quickly quite range rank rate rather rating reach read reader ready real reality really reason reasonable reasonably
receive recommend recommendation record reduce refer reference regard regardless regular related relative relatively
release relevant reliable remain remember remove repeat replace reply report request require requirement respect
response responsible rest return review right rigorous room round rule running safe said sale same sample satisfied
satisfies save says scale score search second section seem seen select selection sell seller send sense sensible sent
separate separately serious serve session sets setting seven several shall shape share sharp ship shopper shorter
should show shown side sign significant similar similarly simple simply since single situation size sized sizes
slightly slow small smaller smallest smart smooth solid solution some somebody somehow someone something sometimes
somewhat soon sort sound source space span speak special specific specifically specified speed spend standard start
state statement status stay step still stop storage store straight strange strict strictly strong stronger strongly
structure style subject such sufficient suggest suit suitable super superb supply support suppose sure surely system
table take taken taking talk target task team technical technology tell term test text than thank their them themselves
then there therefore they thick thin thing think third though thought thousand three through throughout thus time today
together told took tool total totally touch toward trace track trade traditional treat tried truly trust turn twice
type typical typically ultimate under understand unfortunately unique unit universal unless unlike until upon upper
usage used useful user uses using usual usually valid valuable value variant variety various vendor verdict verified
verify version very view vital voucher wait want warning warranty watch ways week weigh weight well went were what
whatever when whenever where whereas whether which whichever while whole whose wide wider width will wise wish within
without word work world worse worst worth worthwhile would write written wrong year yesterday young your yourself zero
affordable beautiful buy bought eight hundred nine nineteen six ten twelve twenty thirty fifty job jobs pesos planner
top two one yes
"""

_OTHERS = """
además ahora alguna antes aquí asimismo aunque barata busca buscar cada calidad cara caro comparar compra comprar como
comparación comprador creo cualquier cuando cuesta cuestan cumple cuidado dado debe decir desde después dice donde
elegir elijo entonces entre envío esa ese esta estaba este espera esto excelente falta finalmente hacer hacia hasta
hecho luego mayor mejor menos menor mientras mismo muy necesita ninguna nada opción otra otro parece pedido pero poco
porque precio previsto primer principio puede pues quiere razón recomendar recomiendo requisito resultado segunda
según seguir siempre sigo siguiente sobre solo también tanto tener termino tengo tiempo tiene tienen toda todo trabajo
último usuario vale vamos anh bạn bằng bây bước các cái cần chỉ chiếc chọn chúng cũng danh sách dùng đã đang đầu đây
đến đó được giá giờ hai hàng hoặc hoàn thành hợp hơn hoạch kết quả khác khách không lại làm lựa mà mình một mua muốn
này nên nếu người nhất nhiều như nhưng phẩm phù rất rẻ rồi sản sánh sau so tất cả tốt theo thì thứ tiếp tục tìm tôi
trong trước từ tuyệt vậy về vẫn vì việc yêu cầu ako alin aking dahil din dito gusto hindi ibang ito itong iyon
kailangan kasi kaya kung kaysa lang lahat maganda mahal may mura muna naman namin natin pareho pipiliin piliin puwede
pwede sana sulit talaga tapos tayo wala yung adalah agar akan atau bagus barang belum bisa cocok dalam dengan harga
ini itu jadi juga kami kalau karena kita kualitas lagi lain lebih mana masih memilih mencari murah pada paling pembeli
pilih pilihan saya sangat sesuai semua sudah tapi tetapi tidak 好的 现在 我们 继续 清单 单上 下一 一件 件事 按计 计划
划完 完成 成这 这个 任务 然后 给出 推荐 出推 比较 较了 所有 商品 有商 产品 第一 一个 第二 二个 更好 因为 它更 更便
便宜 所以 选择 用户 要求 符合 合要 更符 价格 结果 搜索 查看 可以 需要 不需 要再 看了 很好 完全 全符 非常 质量 满足
购买 最好 最佳 而且 但是 如果 没有 这款 那款 这条 那条 一条 另一 另外 其他 前者 后者 仔细 细比 考虑 认为 应该 已经
还是 以及 或者 同时 首先 其次 最后 其中 目前 适合 合适 优质 高质 性价 价比 一款 款商 包邮 品质 推荐这 เอาล่ะ ตอนนี้
ฉันจะ ทำงาน ต่อไป ตามรายการ และทำให้เสร็จ ตามแผน สินค้า ราคา ถูกกว่า ดีกว่า เพราะ ดังนั้น เลือก แนะนำ ผู้ใช้ ต้องการ
ค้นหา ผลลัพธ์ ตัวแรก ตัวที่สอง เหมาะ เหมาะสม คุณภาพ เปรียบเทียบ ทั้งหมด ชิ้นแรก ตรงตาม ความต้องการ งบประมาณ จึงเลือก
ขอแนะนำ
"""

ORDINARY = _ENGLISH + _OTHERS

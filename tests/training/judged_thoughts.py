"""Eighty thoughts over two runs, forty honest and forty faulty, to measure the checks of a thought by.

`KETTLE` and `RUNNER` have as many of each. They were written before the checks were measured on them; then the checks
were mended by what `KETTLE` showed, and `RUNNER` was only counted.
"""

from __future__ import annotations

from typing import NamedTuple

from training.rewriting.model import CallStep, CallTimeline

_KETTLES = (
    '[{"product_id":"3310456712","shop_id":"551208","title":"Hanro Electric Kettle Stainless 1.7L auto shut off","price":'
    '689.0,"service":["freeShipping","COD"],"sold_count":212},{"product_id":"3310998001","shop_id":"640117","title":'
    '"Hanro Glass Kettle 1.7L blue light","price":755.0,"service":["official"],"sold_count":58},{"product_id":'
    '"3312220456","shop_id":"551208","title":"Meadow Travel Kettle foldable 0.6L","price":499.0,"service":["COD"],'
    '"sold_count":9}]'
)
_KETTLE_PAGES = (
    '[{"product_id":"3310456712","description":"Brushed steel body, boils in five minutes.","attributes":{"material":'
    '["stainless steel"],"warranty":["6 months"]},"sku_options":{"1":{"color":"silver"},"2":{"color":"matte black"}}},'
    '{"product_id":"3310998001","description":"Borosilicate glass with a light.","attributes":{"material":["glass"]},'
    '"sku_options":{"1":{"color":"clear"}}}]'
)
_MUGS = (
    '[{"product_id":"7720014588","shop_id":"551208","title":"Velda Ceramic Mug set of 4 speckled","price":380.0,'
    '"service":["freeShipping"],"sold_count":77},{"product_id":"7720660312","shop_id":"902233","title":"Velda Mug single'
    ' with bamboo lid","price":140.0,"service":[],"sold_count":301}]'
)
KETTLE_RUN = CallTimeline(
    query="I need a Hanro electric kettle in matte black, stainless steel, with free shipping, under 800 pesos, and a"
    " set of Velda ceramic mugs. Please get both from one shop.",
    steps=(
        CallStep(name="find_product", arguments='{"q":"hanro electric kettle stainless","page":1}', result=_KETTLES),
        CallStep(
            name="view_product_information",
            arguments='{"product_ids":"3310456712,3310998001"}',
            result=_KETTLE_PAGES,
        ),
        CallStep(
            name="find_product",
            arguments='{"q":"velda ceramic mug set","page":1,"shop_id":"551208"}',
            result=_MUGS,
        ),
        CallStep(
            name="recommend_product",
            arguments='{"product_ids":"3310456712,7720014588"}',
            result='"Recommended to the user: 3310456712,7720014588"',
        ),
        CallStep(
            name="terminate", arguments='{"status":"success"}', result='"The dialogue has ended with status: success"'
        ),
    ),
)
_SHORTS = (
    '[{"product_id":"8105551234","shop_id":"330011","title":"Pacer Running Shorts 5 inch quick dry black","price":320.0,'
    '"service":["COD","lazmall"],"sold_count":1204},{"product_id":"8105777777","shop_id":"330099","title":"Strida Shorts'
    ' cotton lounge grey","price":210.0,"service":["freeShipping"],"sold_count":15}]'
)
_SHORTS_2 = (
    '[{"product_id":"8109000451","shop_id":"330011","title":"Pacer Running Shorts 7 inch with pocket navy","price":355.0,'
    '"service":["lazmall"],"sold_count":640}]'
)
_SHORTS_PAGE = (
    '[{"product_id":"8109000451","description":"Light woven fabric with a zip pocket at the back.","attributes":{"fabric"'
    ':["polyester"],"season":["summer"]},"sku_options":{"1":{"size":"M"},"2":{"size":"L"}}}]'
)
_BOTTLES = (
    '[{"product_id":"9044120087","shop_id":"712345","title":"Corvo Water Bottle 750ml leakproof green","price":199.0,'
    '"service":["COD"],"sold_count":88},{"product_id":"9044555600","shop_id":"712999","title":"Corvo Flask 500ml steel",'
    '"price":450.0,"service":["freeShipping"],"sold_count":23}]'
)
RUNNER_RUN = CallTimeline(
    query="Looking for Pacer running shorts with a pocket in size L, sold on LazMall, and a Corvo water bottle of 750ml."
    " My budget is only `500`, but I have a voucher: it takes `15%` off with a cap of `90` when the total exceeds `400`.",
    steps=(
        CallStep(name="find_product", arguments='{"q":"pacer running shorts","page":1}', result=_SHORTS),
        CallStep(name="find_product", arguments='{"q":"pacer running shorts","page":2}', result=_SHORTS_2),
        CallStep(name="view_product_information", arguments='{"product_ids":"8109000451"}', result=_SHORTS_PAGE),
        CallStep(name="find_product", arguments='{"q":"corvo water bottle 750ml","page":1}', result=_BOTTLES),
        CallStep(
            name="calculate_voucher",
            arguments='{"prices":"355,199","discount":"15","cap":"90","threshold":"400"}',
            result='{"total":554.0,"discount":83.1,"final":470.9}',
        ),
        CallStep(
            name="recommend_product",
            arguments='{"product_ids":"8109000451,9044120087"}',
            result='"Recommended to the user: 8109000451,9044120087"',
        ),
    ),
)


class JudgedThought(NamedTuple):
    """A thought before a step of a run, from 0; `fault` says what is wrong with it, "" for nothing."""

    step: int
    thought: str
    fault: str = ""


KETTLE = (
    JudgedThought(0, "Two things are wanted from one shop: a Hanro kettle and Velda mugs. The kettle has the most conditions, so I start with it."),
    JudgedThought(0, "The kettle must be stainless steel and stay under 800 pesos, so I put brand and material into the first search and leave the color for later."),
    JudgedThought(0, "Let me start with the kettle. I'll search for Hanro electric kettle stainless and see which shops carry it."),
    JudgedThought(0, "Since both items have to come from a single seller, whichever kettle I find will fix the shop for the mugs. First the kettle, then."),
    JudgedThought(1, "Three kettles came back. Two are by Hanro: one of stainless steel at 689 and one of glass at 755. None of the titles tells the color, so I open both pages."),
    JudgedThought(1, "The Meadow one is a travel kettle and not the right brand. The stainless Hanro offers free shipping, the glass one only says official. I want to see their options before I choose."),
    JudgedThought(1, "3310456712 looks right: Hanro, stainless, 1.7L, free shipping and below 800. But is there a matte black option? Its details should tell, and I view 3310998001 next to it."),
    JudgedThought(1, "Both Hanro kettles are cheaper than 800. The steel one ships free, which the shopper wants. I still don't know the colors."),
    JudgedThought(2, "The stainless Hanro does come in matte black, and the glass one only in clear. So 3310456712 it is, and its shop, 551208, should have the mugs as well."),
    JudgedThought(2, "Kettle settled: stainless steel, matte black as an option, 689 pesos with free shipping. Now the mugs; I limit the search to shop 551208 because everything has to come from there."),
    JudgedThought(2, "The glass kettle is out because of its material. With the steel kettle chosen, what remains is a set of Velda ceramic mugs from the same shop."),
    JudgedThought(2, "That page answers the color question. Next I look for Velda ceramic mugs in the kettle's shop."),
    JudgedThought(2, "Good, matte black exists for the steel one. The six months of warranty are a nice extra, though nobody asked for that. On to the mugs."),
    JudgedThought(3, "The set of 4 speckled mugs is by Velda, ceramic, and sold by shop 551208 like the kettle. The single mug with a lid comes from another shop and is no set."),
    JudgedThought(3, "Both wishes are covered: 3310456712 in matte black and the Velda set 7720014588, from the same shop. Together they cost 1069 pesos. Time to recommend them."),
    JudgedThought(3, "7720014588 at 380 is a set and comes from 551208; 7720660312 is a single mug from 902233. The choice is clear."),
    JudgedThought(3, "I recommend the Hanro Electric Kettle Stainless and the Velda Ceramic Mug set, since they share a shop and meet what was asked."),
    JudgedThought(3, "One shop sells both, so I can answer now: the steel Hanro kettle with free shipping at 689, and the speckled Velda mugs at 380."),
    JudgedThought(4, "The recommendation is made and it covers the kettle and the mugs. Nothing else was asked, so I end here."),
    JudgedThought(4, "Both products were named to the shopper. I can close the conversation as a success."),
    # faulty
    JudgedThought(0, "The shopper wants a kettle and mugs. I suspect shop 551208 will sell both of them, so the search begins there.", "foretells a shop"),
    JudgedThought(0, "I start with the kettle. One with auto shut off and a brushed body would be ideal for this shopper.", "foretells a title in plain words"),
    JudgedThought(0, "There are two Hanro kettles on the market, a steel one and a glass one, so I search for the brand.", "foretells a result in plain words"),
    JudgedThought(0, "I looked through the mugs already and they are fine, so what is left is the kettle search.", "claims a step not made"),
    JudgedThought(1, "Two kettles are from Hanro. The glass one ships free while the steel one does not, so I want to see the pages of both.", "a service of another product"),
    JudgedThought(1, "The cheapest of the three is the glass Hanro kettle, so its page deserves a look together with the steel one.", "a false superlative"),
    JudgedThought(1, "The glass kettle costs less than the stainless one, which makes it worth a look at both pages.", "a false comparison"),
    JudgedThought(1, "The search shows kettles by hanro, meadow and breville. The first two of the list deserve a closer look.", "invents a brand in small letters"),
    JudgedThought(1, "The steel kettle comes in matte black, as wanted, and the glass one in clear. I look at both pages to be sure.", "foretells the options"),
    JudgedThought(1, "No kettle here is by Hanro, so I have to open pages of other brands and hope for the best.", "says that none was found"),
    JudgedThought(1, "I now recommend the kettle to the shopper because it meets all that was asked for in the request.", "another call than follows"),
    JudgedThought(2, "The steel kettle's page says it has a copper base and a three year guarantee, so now the mugs are due.", "invents attributes"),
    JudgedThought(2, "The glass kettle comes in matte black, so it wins over the steel one. Next are the mugs from the same shop.", "an option of another product"),
    JudgedThought(2, "Having compared the Meadow page with the two others, I am sure about the steel kettle. Now to the mugs.", "a page that was not opened"),
    JudgedThought(2, "Shop 640117 sells the steel kettle, so the mugs have to come from there as well.", "a shop of another product"),
    JudgedThought(2, "The mugs with the bamboo top would not do because they are sold one by one, so I ask for a set.", "foretells another product"),
    JudgedThought(3, "I choose the glass Hanro kettle and the speckled Velda set, because both come from the same shop.", "another product than the call's"),
    JudgedThought(3, "The single mug is the one to take because it is by Velda and costs 380 pesos, and the kettle is settled.", "a price of another product"),
    JudgedThought(3, "After checking the mug set's page, I know that it is dishwasher safe. So the kettle 3310456712 and the set go to the shopper.", "a page that was not opened"),
    JudgedThought(4, "This was the correct answer and earns the full points, so I stop the dialogue at this place.", "speaks of the grading"),
)  # fmt: skip
RUNNER = (
    JudgedThought(0, "The shopper asks for running shorts by Pacer with a pocket, and for a bottle. Shorts first, because size and LazMall narrow them down."),
    JudgedThought(0, "Okay, two items and a voucher. I search for the shorts with brand and type, and deal with the pocket once I see titles."),
    JudgedThought(0, "The budget of 500 only works with the voucher, which needs a total over 400. Before any of that I need candidates, starting with Pacer running shorts."),
    JudgedThought(1, "Only one of the two is a Pacer, and its title says nothing of a pocket. The other is lounge wear. Another page of the same search may show more."),
    JudgedThought(1, "The black 5 inch shorts are on LazMall at 320, but I don't see a pocket. I check page 2 before settling."),
    JudgedThought(1, "8105777777 is cotton lounge wear by Strida, so it's out. 8105551234 is the right brand, without a mention of pockets. I'd rather look at the next page."),
    JudgedThought(1, "The Pacer shorts sold very well, 1204 times, yet no pocket is mentioned. Let me see what the second page has."),
    JudgedThought(2, "Page two has a Pacer pair with a pocket, navy, 355 PHP, and it is LazMall too. I need to know whether size L exists, so I open it."),
    JudgedThought(2, "8109000451 names the pocket in its title, unlike the black one. What's missing is the size; its page will list the options."),
    JudgedThought(2, "The new one costs 35 pesos more than the black pair, but it has the pocket that was asked for. I look at its sizes."),
    JudgedThought(3, "Size L is there, and the description speaks of a zip pocket. The shorts are found; the Corvo bottle is next."),
    JudgedThought(3, "Polyester, sizes M and L, zip pocket at the back: all fits. Now for the 750ml bottle by Corvo."),
    JudgedThought(3, "With 355 spent on shorts, some 145 of the budget remain before the voucher. Let me find the bottle."),
    JudgedThought(4, "The green Corvo holds 750ml and costs 199; the flask is smaller and dearer. 355 and 199 make 554, above the budget, so I work out what the voucher does."),
    JudgedThought(4, "Shorts and bottle exceed 400 together, so the voucher applies. I calculate the final price to see whether 500 is enough."),
    JudgedThought(4, "554 is over the budget of 500. 15% off could bring it below; the cap of 90 should not matter. I let the tool do the arithmetic."),
    JudgedThought(5, "After the discount of 83.1 the total is 470.9, within the budget of 500. I recommend the navy Pacer shorts and the green bottle."),
    JudgedThought(5, "470.9 is below 500, so 8109000451 and 9044120087 can be recommended together. Pocket, size, LazMall and volume all match."),
    JudgedThought(5, "The voucher brings both under budget. The shorts have a pocket and size L, the Corvo bottle has 750ml. That answers the request."),
    JudgedThought(5, "Everything fits: Pacer Running Shorts 7 inch with pocket at 355 and the Corvo Water Bottle at 199, 470.9 after the voucher."),
    # faulty
    JudgedThought(0, "I begin with the shorts. The pair with the zip at the back should be on the second page of the results.", "foretells in plain words"),
    JudgedThought(0, "Pacer and Strida both make shorts that could fit, so a search for running shorts comes first.", "foretells a brand"),
    JudgedThought(0, "The shorts and the bottle will come to less than the budget once the discount is taken, so I go ahead.", "foretells the outcome"),
    JudgedThought(1, "The grey Strida shorts are on LazMall, the black ones are not. I turn to the second page for more.", "a service of another product"),
    JudgedThought(1, "The Pacer pair is cheaper than the Strida pair but has no pocket, so the second page is next.", "a false comparison"),
    JudgedThought(1, "The first page shows shorts by pacer, strida and by kalenji, none with a pocket. The second page may help.", "invents a brand in small letters"),
    JudgedThought(1, "I opened the page of the black shorts and there is no size L, so I go on to the second page.", "a page that was not opened"),
    JudgedThought(1, "The search came up empty, there isn't a single pair of Pacer shorts, so I try the second page.", "says that none was found"),
    JudgedThought(2, "The seven inch pair is sold in size L and has a zip pocket. I look at its page to make sure.", "foretells the options"),
    JudgedThought(2, "The latter is the cheapest Pacer pair so far, so its page is worth a look for the sizes.", "a false superlative"),
    JudgedThought(2, "Next comes the bottle: I search for a Corvo bottle of the wanted volume while the shorts are settled.", "another call than follows"),
    JudgedThought(3, "The page says the shorts have reflective strips and a drawstring waist, so they will do. Now the bottle.", "invents attributes"),
    JudgedThought(3, "The page lists the sizes S, M and XL, and so L is missing, but I go on to the bottle anyway.", "contradicts the result"),
    JudgedThought(3, "The black shorts have the zip pocket and come in L, so they are settled. On to the bottle.", "an option of another product"),
    JudgedThought(3, "A green leakproof bottle would be fine for a runner, so I search for the bottle by Corvo.", "foretells a title in plain words"),
    JudgedThought(4, "The bottle with 750ml comes from the same shop as the shorts, which helps. I work out the voucher now.", "a false claim about shops"),
    JudgedThought(4, "The steel flask is the cheaper of the two, but it holds less. So I work out the voucher for the bottle.", "a false comparison"),
    JudgedThought(4, "The discount will not reach its cap and the rest stays just within the budget, as the tool is about to say.", "foretells the outcome"),
    JudgedThought(5, "The voucher did not apply, but I recommend the Pacer shorts and the Corvo bottle all the same.", "contradicts the result"),
    JudgedThought(5, "A check of the seller's standing went well, so the navy Pacer shorts and the Corvo bottle are the answer.", "a check that was not made"),
)  # fmt: skip

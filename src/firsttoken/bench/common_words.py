"""Short, frequent English words: one token each, after a space, in every large vocabulary seen so far."""

from __future__ import annotations

_TEXT = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power
hour game line end member law car city community name president team minute idea body information back parent face
others level office door health person art history party result change morning reason research girl guy moment air
teacher force education foot boy age policy music market sense nation plan college interest experience effect use
class control field development role effort rate heart show leader light voice wife police mind price report decision
son view relationship town road arm difference value building action season society tax director position player
record paper space ground form event official matter center couple site project activity star table need court oil
situation cost industry figure street image phone data picture practice piece land product doctor wall patient worker
news test movie north love support technology step baby computer type attention film tree source hair look window
culture chance brother energy period course summer plant opportunity term letter condition choice rule south husband
floor campaign material population call economy hospital church risk fire future bank west sport board subject officer
rest behavior performance top goal second bed order author agency nature color store sound movement page race concern
series language response animal factor article east artist scene stock career treatment approach size dog fund media
sign thought list individual quality pressure answer resource meeting success cup amount ability staff character
growth loss degree region television box training trade deal election feeling standard bill message analysis benefit
lawyer section glass skill sister professor operation stage compare authority design sort knowledge station strategy
truth song example environment leg dark public note
"""

COMMON_WORDS: tuple[str, ...] = tuple(_TEXT.split())
